//! The daemon's end of the control socket.

use super::Commands;
use super::request::{answer, parse};
use crate::rundir::own_user;
use raid_core::error::{Error, ErrorKind, Result};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Longest request, in bytes: a path of 4096 bytes with every one escaped, and some.
pub const LINE_MAX: u64 = 64 << 10;

/// Clients at once; more are turned away.
const CLIENTS_MAX: usize = 16;

/// How long a client may take to say something, or to take its answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Called when a request panics, with what it said.
pub type Alarm = Arc<dyn Fn(String) + Send + Sync>;

/// Answers requests on `listener` until the process ends, each client in a thread of its own.
pub fn listen(
    listener: UnixListener,
    commands: Arc<dyn Commands>,
    alarm: Alarm,
) -> std::io::Result<()> {
    let clients = Arc::new(AtomicUsize::new(0));
    let serve = move || {
        for stream in listener.incoming() {
            // A client that went away at once, or no descriptor to spare: the next may do better.
            let Ok(stream) = stream else {
                std::thread::sleep(Duration::from_millis(10));
                continue;
            };
            let guest = Guest::enter(&clients);
            let (commands, alarm) = (commands.clone(), alarm.clone());
            let talk = move || {
                let _guest = &guest;
                // A client that hangs up in the middle has no use for its answer.
                let _hung_up = talk(&stream, guest.late, &*commands, &alarm);
            };
            // Without a thread the client sees the end of its connection.
            let _none = std::thread::Builder::new().name("client".into()).spawn(talk);
        }
    };
    std::thread::Builder::new().name("control".into()).spawn(serve).map(drop)
}

/// One of the clients at once.
struct Guest {
    clients: Arc<AtomicUsize>,
    /// There are too many already.
    late: bool,
}

impl Guest {
    fn enter(clients: &Arc<AtomicUsize>) -> Guest {
        let before = clients.fetch_add(1, Ordering::Relaxed);
        Guest { clients: clients.clone(), late: before >= CLIENTS_MAX }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.clients.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Answers one client, line by line.
fn talk(
    stream: &UnixStream,
    late: bool,
    commands: &dyn Commands,
    alarm: &Alarm,
) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut out = stream;
    let refusal = match peer(stream)? {
        user if user != own_user() && user != 0 => {
            Some(Error::new(ErrorKind::Refused, "only the owner of the mount and root are heard"))
        }
        _ if late => Some(Error::new(ErrorKind::Busy, "too many clients; try again later")),
        _ => None,
    };
    if let Some(error) = refusal {
        return farewell(stream, error);
    }
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = Vec::new();
        (&mut reader).take(LINE_MAX + 1).read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Ok(());
        }
        if line.len() as u64 > LINE_MAX {
            let text = format!("a request has at most {LINE_MAX} bytes");
            return farewell(stream, Error::invalid(text));
        }
        out.write_all(&answer(respond(&line, commands, alarm)))?;
    }
}

/// The last answer. What the client still says is thrown away, up to some amount: a socket that is
/// closed with something unread takes the answer away again.
fn farewell(mut stream: &UnixStream, error: Error) -> std::io::Result<()> {
    stream.write_all(&answer(Err(error)))?;
    stream.shutdown(Shutdown::Write)?;
    std::io::copy(&mut stream.take(LINE_MAX * 16), &mut std::io::sink()).map(drop)
}

/// Does what a line asks. A panic is told to `alarm`: nobody knows in which state it left what.
fn respond(line: &[u8], commands: &dyn Commands, alarm: &Alarm) -> Result<super::Done> {
    let request = parse(line)?;
    let done = catch_unwind(AssertUnwindSafe(|| commands.perform(&request)));
    done.unwrap_or_else(|panic| {
        let said = crate::export::panic_text(&*panic);
        alarm(format!("{request:?}: {said}"));
        Err(Error::new(ErrorKind::Io, format!("a bug, the mount stops: {said}")))
    })
}

/// The user at the other end; see unix(7), SO_PEERCRED.
fn peer(stream: &UnixStream) -> std::io::Result<u32> {
    let mut who = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the descriptor is open, and the kernel writes at most `len` bytes into `who`.
    let failed = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut who).cast(),
            &mut len,
        )
    };
    match failed {
        0 => Ok(who.uid),
        _ => Err(std::io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Done, Request, Watch};
    use super::*;
    use std::sync::Mutex;

    /// Answers with what was asked; panics if told so.
    struct Parrot;

    impl Commands for Parrot {
        fn perform(&self, request: &Request) -> Result<Done> {
            match request {
                Request::Fail { member } if member == "panic" => panic!("told to"),
                Request::Fail { member } => Err(Error::new(ErrorKind::Busy, member.clone())),
                other => Ok(Done::say(format!("{other:?}"))),
            }
        }

        fn watch(&self, _: Watch) {}
    }

    struct Desk {
        _dir: tempfile::TempDir,
        path: std::path::PathBuf,
        alarms: Arc<Mutex<Vec<String>>>,
    }

    impl Desk {
        fn new() -> Desk {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("socket");
            let alarms: Arc<Mutex<Vec<String>>> = Arc::default();
            let heard = alarms.clone();
            let alarm: Alarm = Arc::new(move |text| heard.lock().unwrap().push(text));
            listen(UnixListener::bind(&path).unwrap(), Arc::new(Parrot), alarm).unwrap();
            Desk { _dir: dir, path, alarms }
        }

        fn client(&self) -> BufReader<UnixStream> {
            let stream = UnixStream::connect(&self.path).unwrap();
            stream.set_read_timeout(Some(PATIENCE * 3)).unwrap();
            BufReader::new(stream)
        }
    }

    fn say(client: &mut BufReader<UnixStream>, bytes: &[u8]) -> String {
        // The other end may have answered and gone before all was said.
        let _ = client.get_ref().write_all(bytes);
        let mut line = String::new();
        client.read_line(&mut line).unwrap();
        line
    }

    #[test]
    fn each_line_has_its_answer_whatever_it_is() {
        let desk = Desk::new();
        let mut client = desk.client();
        assert_eq!(
            say(&mut client, b"{\"cmd\":\"status\"}\n"),
            "{\"ok\":true,\"text\":\"Status\"}\n"
        );
        let line = say(&mut client, b"{\"cmd\":\"fail\",\"member\":\"m\"}\n");
        assert_eq!(line, "{\"error\":{\"kind\":\"busy\",\"text\":\"m\"}}\n");
        for wrong in [&b"\n"[..], b"nonsense\n", b"\xff\x00\xfe\n", b"{\"cmd\":\"x\"}\n"] {
            let line = say(&mut client, wrong);
            assert!(line.starts_with("{\"error\":{\"kind\":\"invalid\""), "{line}");
        }
        assert!(desk.alarms.lock().unwrap().is_empty());
    }

    #[test]
    fn a_line_without_end_is_cut_off() {
        let desk = Desk::new();
        let mut client = desk.client();
        let line = say(&mut client, &vec![b'x'; LINE_MAX as usize + 10]);
        assert!(line.contains("at most 65536 bytes"), "{line}");
        assert_eq!(say(&mut client, b"\n"), "", "the connection has ended");
    }

    #[test]
    fn a_client_that_hangs_holds_up_nobody() {
        let desk = Desk::new();
        let stuck: Vec<_> = (0..CLIENTS_MAX - 1).map(|_| desk.client()).collect();
        stuck.iter().for_each(|client| client.get_ref().write_all(b"{\"cmd\"").unwrap());
        assert!(say(&mut desk.client(), b"{\"cmd\":\"status\"}\n").contains("true"));
    }

    #[test]
    fn too_many_clients_are_turned_away_and_come_back() {
        let desk = Desk::new();
        let many: Vec<_> = (0..CLIENTS_MAX).map(|_| desk.client()).collect();
        let until = std::time::Instant::now() + PATIENCE;
        let say_status = || say(&mut desk.client(), b"{\"cmd\":\"status\"}\n");
        assert!(say_status().contains("too many clients"));
        drop(many);
        while !say_status().contains("true") {
            assert!(std::time::Instant::now() < until);
        }
    }

    #[test]
    fn a_panic_is_an_alarm_and_an_answer() {
        let desk = Desk::new();
        let line = say(&mut desk.client(), b"{\"cmd\":\"fail\",\"member\":\"panic\"}\n");
        assert!(line.contains("a bug, the mount stops: told to"), "{line}");
        assert_eq!(desk.alarms.lock().unwrap().len(), 1);
    }
}
