//! Mounting: `/dev/fuse` and mount(2) for root, the setuid helper `fusermount3` for others.
//!
//! The result is the descriptor that speaks FUSE; whoever holds it serves the mount.

use super::FSTYPE;
use raid_core::error::{Error, ErrorKind, Result};
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// What still works where nothing can be mounted.
const ALTERNATIVES: &str = "without a mount, the data can still be reached: \
    `raid-fuse cat` reads the volume to standard output, \
    `raid-fuse write --offset` writes standard input into it";

/// The helper for ordinary users; comes with the package fuse3.
const HELPER: &str = "fusermount3";

/// How to mount.
pub struct Request<'a> {
    /// A directory, absolute.
    pub path: &'a Path,
    /// What shows as the source of the mount.
    pub source: &'a str,
    /// Mounts with MS_RDONLY.
    pub read_only: bool,
    /// Other users may look in.
    pub allow_other: bool,
}

/// Mounts, and hands back the descriptor on which the kernel asks.
pub fn attach(request: &Request<'_>) -> Result<OwnedFd> {
    let device = open_device()?;
    // SAFETY: takes nothing, cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return attach_by_helper(request);
    }
    match attach_directly(request, &device) {
        Ok(()) => Ok(device),
        Err(error) if is_denied(&error) => {
            attach_by_helper(request).map_err(|helper| denied(request.path, &error, &helper))
        }
        Err(error) => Err(Error::io(format!("mounting on {}", request.path.display()), error)),
    }
}

fn open_device() -> Result<OwnedFd> {
    let opened = File::options().read(true).write(true).open("/dev/fuse");
    opened.map(OwnedFd::from).map_err(|error| {
        unsupported(format!(
            "cannot mount: /dev/fuse: {error}; load the kernel module fuse or, in a container, \
             pass the device in"
        ))
    })
}

fn attach_directly(request: &Request<'_>, device: &OwnedFd) -> io::Result<()> {
    let mut data = format!(
        "fd={},rootmode=40000,user_id={},group_id={},default_permissions",
        device.as_raw_fd(),
        // SAFETY: takes nothing, cannot fail.
        unsafe { libc::geteuid() },
        // SAFETY: as above.
        unsafe { libc::getegid() },
    );
    if request.allow_other {
        data.push_str(",allow_other");
    }
    let source = CString::new(clean(request.source)).expect("cleaned of zero bytes");
    let path = CString::new(request.path.as_os_str().as_bytes())?;
    let fstype = CString::new(FSTYPE).expect("a constant without zero bytes");
    let data = CString::new(data).expect("numbers and constants");
    let read_only = if request.read_only { libc::MS_RDONLY } else { 0 };
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOATIME | read_only;
    // SAFETY: all five arguments are valid for the call.
    let failed = unsafe {
        libc::mount(source.as_ptr(), path.as_ptr(), fstype.as_ptr(), flags, data.as_ptr().cast())
    };
    if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn is_denied(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES | libc::ENODEV | libc::ENOSYS))
}

fn denied(path: &Path, direct: &io::Error, helper: &Error) -> Error {
    unsupported(format!(
        "mounting on {} is not allowed here: {direct}; {HELPER}: {helper}",
        path.display()
    ))
}

fn unsupported(problem: String) -> Error {
    Error::new(ErrorKind::Unsupported, format!("{problem}; {ALTERNATIVES}"))
}

/// The helper gets one end of a socket pair by number in `_FUSE_COMMFD`, mounts, and sends the
/// descriptor through it.
fn attach_by_helper(request: &Request<'_>) -> Result<OwnedFd> {
    let pair_failed = |error| Error::io("a socket pair for fusermount3", error);
    let (ours, theirs) = UnixStream::pair().map_err(pair_failed)?;
    let mut options = format!(
        "fsname={},subtype=raid-fuse,default_permissions,nosuid,nodev,noatime",
        clean(request.source)
    );
    if request.read_only {
        options.push_str(",ro");
    }
    if request.allow_other {
        options.push_str(",allow_other");
    }
    let mut command = Command::new(HELPER);
    command.arg("-o").arg(options).arg("--").arg(request.path);
    command.env("_FUSE_COMMFD", theirs.as_raw_fd().to_string());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let fd = theirs.as_raw_fd();
    // SAFETY: between fork and exec only fcntl is called, which is allowed there; `theirs` lives
    // until after the spawn.
    unsafe {
        command.pre_exec(move || match libc::fcntl(fd, libc::F_SETFD, 0) {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        });
    }
    let child = command.spawn().map_err(|error| {
        unsupported(format!(
            "cannot mount as an ordinary user: {HELPER}: {error}; install the package fuse3"
        ))
    })?;
    drop(theirs);
    let device = receive_descriptor(&ours);
    let output = child.wait_with_output().map_err(|error| Error::io(HELPER, error))?;
    match device {
        Ok(device) if output.status.success() => Ok(device),
        _ => Err(helper_error(request.path, &String::from_utf8_lossy(&output.stderr))),
    }
}

fn helper_error(path: &Path, said: &str) -> Error {
    let said = said.trim().trim_start_matches("fusermount3:").trim();
    let shown = path.display();
    if said.contains("user_allow_other") {
        return Error::new(
            ErrorKind::Refused,
            "other users can only be let in if the line user_allow_other stands in /etc/fuse.conf",
        );
    }
    if said.contains("no write access") || said.contains("not owned") {
        return Error::new(
            ErrorKind::Refused,
            format!("{said}: an ordinary user mounts on a directory that is their own ({shown})"),
        );
    }
    if said.contains("Operation not permitted") || said.contains("must be root") {
        return unsupported(format!("mounting on {shown} is not allowed here: {said}"));
    }
    Error::new(ErrorKind::Io, format!("mounting on {shown}: {HELPER}: {said}"))
}

/// Keeps what is harmless in a mount option and in the mount table.
fn clean(source: &str) -> String {
    let fine = |c: char| c.is_ascii_alphanumeric() || ".:/_-+".contains(c);
    source.chars().map(|c| if fine(c) { c } else { '_' }).collect()
}

/// One descriptor sent over `socket` (SCM_RIGHTS, see unix(7)).
fn receive_descriptor(socket: &UnixStream) -> io::Result<OwnedFd> {
    const SPACE: usize = 64;
    /// Control messages start aligned like their header.
    #[repr(align(8))]
    struct Control([u8; SPACE]);
    let mut control = Control([0; SPACE]);
    let mut byte = 0u8;
    let mut piece = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // SAFETY: an all-zero msghdr is a valid empty one.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut piece;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = SPACE as _;
    let received = loop {
        // SAFETY: `message` points at live memory of the lengths it states.
        let received =
            unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) };
        let interrupted = || io::Error::last_os_error().kind() == io::ErrorKind::Interrupted;
        if received >= 0 || !interrupted() {
            break received;
        }
    };
    if received < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `message` was filled in by recvmsg; the header it finds lies inside `control`.
    let header = unsafe { libc::CMSG_FIRSTHDR(&raw const message).as_ref() };
    let right = header.filter(|header| {
        header.cmsg_level == libc::SOL_SOCKET && header.cmsg_type == libc::SCM_RIGHTS
    });
    match right {
        // SAFETY: SCM_RIGHTS carries at least one descriptor, which is now ours alone.
        Some(header) => Ok(unsafe {
            OwnedFd::from_raw_fd(libc::CMSG_DATA(header).cast::<libc::c_int>().read_unaligned())
        }),
        None => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_cannot_smuggle_options() {
        assert_eq!(clean("md0,allow_other \0x"), "md0_allow_other__x");
        assert_eq!(clean("home:0"), "home:0");
    }

    #[test]
    fn helper_words_become_ours() {
        let path = Path::new("/mnt/a");
        let said = "fusermount3: option allow_other only allowed if 'user_allow_other' is set";
        assert_eq!(helper_error(path, said).kind, ErrorKind::Refused);
        let said = "fusermount3: mount failed: Operation not permitted";
        let error = helper_error(path, said);
        assert_eq!(error.kind, ErrorKind::Unsupported);
        assert!(error.to_string().contains("raid-fuse cat"));
    }
}
