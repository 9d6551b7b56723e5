//! Who keeps a mount busy: open files, working directories, mappings, loop devices.
//!
//! By name only, from /proc and /sys: nothing is opened inside the mount. An ordinary user sees
//! only their own processes, so the list can be incomplete and says so by being empty.

use super::table;
use std::path::{Path, PathBuf};

/// Holders named in a message; more are counted only.
const NAMED_MAX: usize = 5;

/// `: by cat (pid 5: volume), loop0 (...)`, or what to look for if nobody was found.
pub fn describe(mountpoint: &Path) -> String {
    let mut found = loop_devices(mountpoint);
    found.extend(processes(mountpoint));
    if found.is_empty() {
        return format!(
            ", but not by a process that can be seen; try: fuser -vm {}",
            mountpoint.display()
        );
    }
    let more = found.len().saturating_sub(NAMED_MAX);
    found.truncate(NAMED_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!(" by {}{more}; end these first", found.join(", "))
}

/// Processes in other mount namespaces that still have a mount of this file system, by
/// `major:minor`: they keep it alive after it is unmounted here. A process whose namespace cannot
/// be told from ours does not count.
pub fn elsewhere(device: (u32, u32)) -> Vec<String> {
    let Some(own) = namespace("self") else { return Vec::new() };
    let has_it = |pid: &u32| {
        let text = std::fs::read(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
        namespace(&pid.to_string()).is_some_and(|theirs| theirs != own)
            && table::parse(&text).iter().any(|entry| entry.device == device)
    };
    pids().filter(has_it).map(|pid| format!("{} (pid {pid})", name(pid))).collect()
}

/// The mount namespace of a process, `mnt:[4026531840]`; a thread of the kernel may have none.
fn namespace(pid: &str) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/{pid}/ns/mnt")).ok()
}

fn loop_devices(mountpoint: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/sys/block").into_iter().flatten().flatten() {
        let backing = entry.path().join("loop/backing_file");
        let Ok(text) = std::fs::read_to_string(backing) else { continue };
        if table::is_inside(Path::new(text.trim_end_matches('\n')), mountpoint) {
            let device = entry.file_name().display().to_string();
            let source = format!("/dev/{device}");
            let mounts = table::read().unwrap_or_default();
            let advice = match mounts.iter().find(|entry| entry.source == source) {
                Some(entry) => format!("umount {}", entry.mountpoint.display()),
                None => format!("losetup -d {source}"),
            };
            found.push(format!("{source} (detach it: {advice})"));
        }
    }
    found
}

fn processes(mountpoint: &Path) -> Vec<String> {
    let holder = |pid: u32| {
        let path = held_by(pid, mountpoint)?;
        Some(format!("{} (pid {pid}: {})", name(pid), path.display()))
    };
    let own = std::process::id();
    let others: Vec<String> = pids().filter(|pid| *pid != own).filter_map(holder).collect();
    // Whoever asks has its working directory and descriptors from its caller, who is named then.
    if others.is_empty() { holder(own).into_iter().collect() } else { others }
}

/// The first thing inside the mount that a process holds.
fn held_by(pid: u32, mountpoint: &Path) -> Option<PathBuf> {
    let proc = PathBuf::from(format!("/proc/{pid}"));
    let links = ["root", "exe", "cwd"].map(|name| proc.join(name));
    let open = std::fs::read_dir(proc.join("fd")).into_iter().flatten().flatten();
    let targets = links.into_iter().chain(open.map(|entry| entry.path()));
    let mut targets = targets.filter_map(|link| std::fs::read_link(link).ok());
    let inside = |path: &PathBuf| table::is_inside(path, mountpoint);
    targets.find(inside).or_else(|| mapped(&proc, mountpoint))
}

fn mapped(proc: &Path, mountpoint: &Path) -> Option<PathBuf> {
    let maps = std::fs::read_to_string(proc.join("maps")).ok()?;
    let paths = maps.lines().filter_map(|line| line.find('/').map(|at| Path::new(&line[at..])));
    paths.map(Path::to_path_buf).find(|path| table::is_inside(path, mountpoint))
}

fn pids() -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn name(pid: u32) -> String {
    let comm = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    comm.trim_end().to_string()
}
