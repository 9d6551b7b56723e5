//! What an array is and how it does, once as data, from there as text for people and programs.
//!
//! [`Report`] is the one description: made from a running array or from superblocks alone, kept
//! as `status.json` in a mount, printed as mdadm's `--detail` ([`detail`]) or as the kernel's
//! `/proc/mdstat` ([`mdstat`]). Keys stay; sizes are in bytes.

pub mod detail;
pub mod evidence;
pub mod make;
pub mod mdstat;

use serde::{Deserialize, Serialize};

/// Whether the data can be served.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    /// All members are there and in sync.
    Ok,
    /// All data are there, but fewer members than the array has.
    Degraded,
    /// Data are missing.
    Dead,
}

/// An array at one moment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Array id as mdadm prints it.
    pub uuid: String,
    /// `host:name`, or empty.
    pub name: String,
    /// Whether the data can be served.
    pub health: Health,
    /// mdadm's words: `clean, degraded`.
    pub state: String,
    /// True if it is being served, false if this is from superblocks alone.
    pub running: bool,
    /// Nothing is written.
    pub read_only: bool,
    /// `raid5`.
    pub level: String,
    /// md's level number.
    pub level_number: i32,
    /// `left-symmetric`; none where the level has none.
    pub layout: Option<String>,
    /// md's layout word.
    pub layout_number: u32,
    /// `1.2`.
    pub metadata: String,
    /// Chunk; zero where the level has none.
    pub chunk_bytes: u64,
    /// Array size; none if members are missing that it depends on.
    pub size_bytes: Option<u64>,
    /// Used bytes of each member; none where members are used whole.
    pub component_bytes: Option<u64>,
    /// Slots of the array: md's raid devices.
    pub slots: u16,
    /// Members that are there and in sync.
    pub active: u16,
    /// Members that are there and have not failed.
    pub working: u16,
    /// Members that failed since the start.
    pub failed: u16,
    /// Creation time, seconds since 1970.
    pub created_seconds: u64,
    /// Last update of the superblocks, seconds since 1970.
    pub updated_seconds: u64,
    /// Update counter.
    pub events: u64,
    /// The write-intent bitmap, if there is one.
    pub bitmap: Option<Bitmap>,
    /// How redundancy is kept right over a crash, in md's words: `none`, `resync`, `bitmap`,
    /// `journal` or `ppl`.
    #[serde(default)]
    pub consistency_policy: String,
    /// A resync, recovery, check or repair that runs, or a resync that is needed.
    pub resync: Option<Resync>,
    /// No job begins.
    #[serde(default)]
    pub frozen: bool,
    /// Why a job that is needed does not run.
    #[serde(default)]
    pub trouble: Option<String>,
    /// Sectors that did not agree in the last check or repair.
    pub mismatch_cnt: u64,
    /// What the last job did, in the words of md's `last_sync_action`.
    pub last_sync_action: String,
    /// By slot, then spares.
    pub members: Vec<Member>,
    /// Counters since the start; empty if not running.
    pub counters: serde_json::Map<String, serde_json::Value>,
    /// What the user should know.
    pub warnings: Vec<String>,
}

/// A member, or a place without one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Member {
    /// Its slot; none for spares and those left out.
    pub slot: Option<u16>,
    /// Its path or spec; none if it is missing.
    pub path: Option<String>,
    /// Device number in the superblock's role map.
    pub number: Option<u32>,
    /// mdadm's words: `active sync`, `removed`, `faulty`, `spare rebuilding`.
    pub state: String,
    /// Read from it only if nothing else has the data.
    pub write_mostly: bool,
    /// Its own id.
    pub device_uuid: Option<String>,
    /// Where its data begin.
    pub data_offset_bytes: Option<u64>,
    /// Read and write errors since the start.
    pub errors: u32,
    /// It is filled to replace the member that is in its slot.
    #[serde(default)]
    pub replacement: bool,
    /// Its place in the order in which the devices joined; none if not running.
    #[serde(default)]
    pub joined: Option<usize>,
}

/// A write-intent bitmap.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Bitmap {
    /// Bytes of a member (RAID 10: of the array) for each bit.
    pub chunk_bytes: u64,
    /// Bits in use.
    pub bits: u64,
    /// Bits that are set now.
    pub set: u64,
}

/// A job over the whole array.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Resync {
    /// md's word: `resync`, `recovery`, `check` or `repair`.
    pub action: String,
    /// It is being done, not only needed.
    pub running: bool,
    /// Bytes done, of each member (RAID 10: of the array).
    pub done_bytes: u64,
    /// Bytes in all.
    pub total_bytes: u64,
    /// Bytes a second since it began; zero if not known.
    pub speed_bytes: u64,
}

impl Resync {
    /// How much is done, in percent.
    pub fn percent(&self) -> u64 {
        let total = self.total_bytes.max(1);
        (u128::from(self.done_bytes.min(total)) * 100 / u128::from(total)) as u64
    }
}

impl Report {
    /// `raid5, 3 of 4 members, 192.0 MiB (201.3 MB)`.
    pub fn headline(&self) -> String {
        let size = match self.size_bytes {
            Some(bytes) => crate::cli::amount::human(bytes),
            None => "size unknown".into(),
        };
        let extra = match (self.health, self.read_only) {
            (Health::Degraded, true) => ", degraded, read-only",
            (Health::Degraded, false) => ", degraded",
            (Health::Dead, _) => ", FAILED",
            (Health::Ok, true) => ", read-only",
            (Health::Ok, false) => "",
        };
        let serves = |m: &&Member| {
            m.slot.is_some() && m.path.is_some() && m.state != "faulty" && !m.replacement
        };
        let there = self.members.iter().filter(serves).count();
        format!("{}, {there} of {} members, {size}{extra}", self.level, self.slots)
    }

    /// `[U_UU]`: slots in sync.
    pub fn marks(&self) -> String {
        let slots = self.members.iter().filter(|m| m.slot.is_some() && !m.replacement);
        let mark = |member: &Member| if member.state == IN_SYNC { 'U' } else { '_' };
        format!("[{}]", slots.map(mark).collect::<String>())
    }

    /// The word of the kernel's `sync_action`.
    pub fn sync_action(&self) -> &str {
        match self.resync.as_ref().filter(|job| job.running) {
            Some(job) if job.action == "recovery" => "recover",
            Some(job) => &job.action,
            None if self.frozen => "frozen",
            None => "idle",
        }
    }

    /// What it says as pretty JSON.
    pub fn json(&self) -> String {
        let text = serde_json::to_string_pretty(self);
        let text = text.expect("strings, numbers and lists can be written as JSON");
        format!("{text}\n")
    }
}

/// The state of a member that has everything.
pub const IN_SYNC: &str = "active sync";
