//! Members for a measurement: made, filled, opened.

use raid_core::assembly::{StartOptions, decide, examine, make, start};
use raid_core::device::{self, OpenOptions};
use raid_core::driver::Array;
use raid_core::error::{Error, Result};
use raid_core::meta::assemble;
use raid_core::meta::create::{NewMember, Request, create};
use raid_core::meta::md1;
use raid_core::units::Sectors;
use std::fs::File;
use std::path::{Path, PathBuf};

/// An array to make.
#[derive(Clone, Copy, Debug)]
pub struct Geometry {
    /// How to call it in the table.
    pub name: &'static str,
    /// md's level.
    pub level: i32,
    /// Members.
    pub slots: usize,
    /// Slots to leave out when it is opened.
    pub missing: usize,
}

/// Makes the members in `dir`, `size` bytes each, and fills the array with numbers that do not
/// compress and are nowhere zero pages. Returns the members to open.
pub fn make_filled(
    dir: &Path,
    geometry: &Geometry,
    size: u64,
    chunk: Sectors,
) -> Result<Vec<PathBuf>> {
    let path = |slot: usize| dir.join(format!("{}-{slot}.img", geometry.name));
    let paths: Vec<PathBuf> = (0..geometry.slots).map(path).collect();
    for path in &paths {
        File::create(path)
            .and_then(|file| file.set_len(size))
            .map_err(|error| Error::io(path.display(), error))?;
    }
    let member = |slot| {
        let device_uuid = [slot as u8 + 1; 16];
        let sectors = Sectors::floor_bytes(size);
        Some(NewMember { sectors, device_uuid, write_mostly: false, failfast: false })
    };
    let creation = create(&Request {
        format: &md1::V1_2,
        level: geometry.level,
        layout: None,
        chunk: (geometry.level != 1).then_some(chunk),
        members: (0..geometry.slots).map(member).collect(),
        name: geometry.name.into(),
        homehost: None,
        uuid: [geometry.level as u8 + 1; 16],
        ctime: 1_700_000_000,
        size: None,
        data_at: None,
        assume_clean: false,
        zeroed: true,
        bitmap: None,
        log: None,
        force: false,
    })?;
    let devices = open_devices(&paths)?;
    make(&creation, &devices)?;
    drop(devices);
    fill(&open(&paths)?)?;
    Ok(paths[geometry.missing..].to_vec())
}

fn fill(array: &Array) -> Result<()> {
    let mut data = vec![0u8; 1 << 20];
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut at = 0;
    while at < array.size() {
        for word in data.chunks_exact_mut(8) {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            word.copy_from_slice(&(state | 1).to_le_bytes());
        }
        let len = data.len().min((array.size() - at) as usize);
        array.write(at, &data[..len])?;
        at += len as u64;
    }
    array.stop()
}

fn open_devices(paths: &[PathBuf]) -> Result<Vec<device::Shared>> {
    paths.iter().map(|path| device::file::open(path, &OpenOptions::default())).collect()
}

/// Starts the array of `paths`, degraded if some are missing.
pub fn open(paths: &[PathBuf]) -> Result<Array> {
    let devices = open_devices(paths)?;
    let candidates = devices.iter().map(|d| examine(&**d)).collect::<Result<Vec<_>>>()?;
    let options = assemble::Options { degraded: true, ..Default::default() };
    start(&decide(&candidates, &options)?, &devices, &StartOptions::default())
}
