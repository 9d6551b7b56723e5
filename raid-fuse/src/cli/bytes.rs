//! `cat` and `write`: the bytes of an array without mounting it, for machines without FUSE.

use super::start::Choices;
use super::{amount, exit, out};
use raid_core::error::{Error, Result};
use std::io::Read;
use std::process::ExitCode;

/// Bytes moved at a time.
const PIECE: usize = 1 << 20;

/// Arguments of `cat`.
#[derive(clap::Args)]
#[command(after_long_help = "\
Opens the members for reading only and writes nothing to them. Needs neither root nor /dev/fuse.

Examples:
  raid-fuse cat d?.img > volume.img
  raid-fuse cat --degraded --offset 1M --length 4K d0.img d1.img d3.img | hexdump -C")]
pub struct CatArgs {
    /// Files or block devices, in any order
    #[arg(required = true, value_name = "MEMBER")]
    members: Vec<String>,
    /// First byte of the array to show
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = amount::bytes)]
    offset: u64,
    /// How many bytes [default: up to the end]
    #[arg(long, value_name = "BYTES", value_parser = amount::bytes)]
    length: Option<u64>,
    #[command(flatten)]
    choices: Choices,
}

/// Copies a part of the array to standard output.
pub fn cat(args: &CatArgs) -> Result<ExitCode> {
    let array = args.choices.start(&args.members, true)?.array;
    let end = end(args.offset, args.length, array.size())?;
    let mut buf = array.pool().take(PIECE);
    let mut at = args.offset;
    while at < end {
        let len = (end - at).min(PIECE as u64) as usize;
        array.read(at, &mut buf[..len])?;
        if !out::write(&buf[..len])? {
            break;
        }
        at += len as u64;
    }
    array.stop()?;
    Ok(ExitCode::SUCCESS)
}

fn end(offset: u64, length: Option<u64>, size: u64) -> Result<u64> {
    let end = length.map_or(Some(size.max(offset)), |length| offset.checked_add(length));
    end.filter(|end| *end <= size).ok_or_else(|| {
        Error::invalid(format!("the array has {size} bytes; choose --offset and --length inside"))
    })
}

/// Arguments of `write`.
#[derive(clap::Args)]
#[command(after_long_help = "\
Starts the array, writes standard input into it, makes it durable and stops it cleanly. Needs
neither root nor /dev/fuse.

Examples:
  raid-fuse write d?.img < volume.img
  printf hello | raid-fuse write --offset 1M d?.img")]
pub struct WriteArgs {
    /// Files or block devices, in any order
    #[arg(required = true, value_name = "MEMBER")]
    members: Vec<String>,
    /// First byte of the array to write
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = amount::bytes)]
    offset: u64,
    #[command(flatten)]
    choices: Choices,
}

/// Copies standard input into the array.
pub fn write(args: &WriteArgs) -> Result<ExitCode> {
    if is_stdin_closed() {
        return Ok(exit::misuse(&Error::invalid(
            "standard input is closed, so there is nothing to write; give it, as in \
             `raid-fuse write MEMBER... < FILE`",
        )));
    }
    let array = args.choices.start(&args.members, false)?.array;
    let written = check_fit(&array, args.offset).and_then(|()| copy_in(&array, args.offset));
    // What was written is made durable also if more could not be.
    let stopped = array.flush().and_then(|()| array.stop());
    let written = written?;
    stopped?;
    out::note(&format!("{written} bytes written at byte {}", args.offset));
    Ok(ExitCode::SUCCESS)
}

/// True if this process was started without standard input: the runtime then opens /dev/null for
/// reading and writing in its place. A shell's `< /dev/null`, which means an empty input, is open
/// for reading only.
fn is_stdin_closed() -> bool {
    // SAFETY: a plain call with numbers.
    let flags = unsafe { libc::fcntl(libc::STDIN_FILENO, libc::F_GETFL) };
    let target = std::fs::read_link("/proc/self/fd/0").unwrap_or_default();
    flags < 0 || (flags & libc::O_ACCMODE == libc::O_RDWR && target.as_os_str() == "/dev/null")
}

/// What can be known to be wrong before the first byte is written.
fn check_fit(array: &raid_core::driver::Array, offset: u64) -> Result<()> {
    end(offset, None, array.size())?;
    let meta = std::fs::metadata("/dev/stdin").ok().filter(|meta| meta.is_file());
    let room = array.size() - offset;
    match meta.map(|meta| meta.len()).filter(|len| *len > room) {
        None => Ok(()),
        Some(len) => Err(Error::invalid(format!(
            "the input has {len} bytes, but the array has only {room} from byte {offset} on; \
             nothing was written"
        ))),
    }
}

fn copy_in(array: &raid_core::driver::Array, offset: u64) -> Result<u64> {
    let mut input = std::io::stdin().lock();
    let mut buf = vec![0; PIECE];
    let mut at = offset;
    loop {
        let len = fill(&mut input, &mut buf)?;
        if len == 0 {
            return Ok(at - offset);
        }
        let left = array.size().saturating_sub(at);
        let fits = left.min(len as u64) as usize;
        array.write(at, &buf[..fits])?;
        at += fits as u64;
        if fits < len {
            let written = at - offset;
            return Err(Error::invalid(format!(
                "the input does not fit: the array has {} bytes, {written} were written from \
                 byte {offset} on",
                array.size()
            )));
        }
    }
}

/// Reads until the buffer is full or the input ends.
fn fill(input: &mut impl Read, buf: &mut [u8]) -> Result<usize> {
    let mut done = 0;
    while done < buf.len() {
        match input.read(&mut buf[done..]) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Error::io("standard input", error)),
        }
    }
    Ok(done)
}
