//! How a volume is mounted: what the kernel caches, how many threads serve, who may look.

/// What the kernel's page cache does with the volume file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Cache {
    /// Every read and write is a request of its own: the fastest for streams, for deep queues
    /// and for anything above that caches itself (loop devices, databases, virtual machines).
    #[default]
    None,
    /// Reads are cached, writes go through at once.
    Read,
    /// Writes are kept in the page cache until fsync or close; only good for small sequential
    /// buffered writes. A write across the end of the volume fails at fsync, not at once.
    Writeback,
}

/// Options of one mount.
#[derive(Clone, Debug)]
pub struct Options {
    /// What the kernel caches.
    pub cache: Cache,
    /// Threads that take requests; without a number [`Options::threads_default`].
    pub threads: Option<usize>,
    /// Requests the kernel sends at once on its own account (readahead, asynchronous direct I/O).
    /// FUSE's default of 16 starves members that have latency.
    pub max_background: u16,
    /// Lets other users than the one who mounts look in; file permissions still apply.
    pub allow_other: bool,
    /// What `mount` and `df` show as the source: the array's name.
    pub name: String,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            cache: Cache::None,
            threads: None,
            max_background: 64,
            allow_other: false,
            name: "md".into(),
        }
    }
}

impl Options {
    /// One thread per core, at least 2 and at most 8: more only take turns (16 threads on two
    /// cores run single requests at 0.6 of the speed).
    pub fn threads_default() -> usize {
        std::thread::available_parallelism().map_or(2, |cores| cores.get().clamp(2, 8))
    }
}
