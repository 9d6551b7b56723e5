//! Where things lie on a device that joins an array that exists.
//!
//! Metadata lies as on a member that is there, at the same distances from the superblock. Data
//! begins where it does on that member if the device has the room, else as late as fits: each
//! member has its own data offset, and only the component size is common.

use super::Format;
use super::bytes::overlap;
use super::record::{Area, ArrayRecord, MemberRecord};
use crate::error::{Error, Result};
use crate::units::Sectors;

/// mdadm aligns data to 4 KiB at least.
const DATA_ALIGN: Sectors = Sectors(8);

/// Sectors of a superblock.
const SUPER_LEN: Sectors = Sectors(8);

/// The record of a device of `sectors` that joins `array` beside `like`; it has no number yet.
/// `bitmap`: sectors of the write-intent bitmap, if there is one.
///
/// # Errors
/// The device is too small.
pub fn plan(
    format: &Format,
    array: &ArrayRecord,
    like: &MemberRecord,
    bitmap: Option<Sectors>,
    sectors: Sectors,
    device_uuid: [u8; 16],
) -> Result<MemberRecord> {
    let needed = array.component;
    let too_small = || {
        Error::invalid(format!(
            "it has {} bytes; a member needs {} for data and room for its metadata",
            sectors.bytes(),
            needed.bytes()
        ))
    };
    let super_at = (format.super_at)(sectors).ok_or_else(too_small)?;
    let beside = |at: Sectors| {
        let distance = at.0 as i128 - like.super_at.0 as i128;
        u64::try_from(i128::from(super_at.0) + distance).map(Sectors).map_err(|_| too_small())
    };
    let bad_log = match like.bad_log {
        Some(log) => Some(Area { at: beside(log.at)?, len: log.len }),
        None => None,
    };
    let bitmap_at = like.bitmap_at.map(beside).transpose()?;
    let ppl = match like.ppl {
        Some(ppl) => Some(Area { at: beside(ppl.at)?, len: ppl.len }),
        None => None,
    };
    let bits = bitmap_at.zip(bitmap).map(|(at, len)| Area { at, len });
    let metadata: Vec<Area> = [Some(Area { at: super_at, len: SUPER_LEN }), bad_log, bits, ppl]
        .into_iter()
        .flatten()
        .collect();
    let behind = super_at >= needed;
    let first = match behind {
        true => Sectors::ZERO,
        false => metadata.iter().map(|area| area.end()).max().unwrap_or_default(),
    };
    let last = match behind {
        true => Sectors::ZERO,
        false => sectors.checked_sub(needed).ok_or_else(too_small)?,
    };
    let data_at = like.data_at.min(last.round_down(DATA_ALIGN));
    let data = Area { at: data_at, len: needed };
    let outside = data_at < first || data.end() > sectors;
    if outside || metadata.iter().any(|&area| overlap(area, data)) {
        return Err(too_small());
    }
    let end = if behind { like_end(like, super_at) } else { sectors };
    Ok(MemberRecord {
        super_at,
        data_at,
        data_len: (end - data_at).max(needed),
        number: 0,
        device_uuid,
        recovery: None,
        replacement: false,
        write_mostly: false,
        failfast: false,
        bad_log,
        bad_blocks: Vec::new(),
        bitmap_at,
        ppl,
        journal_tail: None,
        corrected_reads: 0,
        raw: like.raw.clone(),
    })
}

/// Where data may reach on a device whose superblock lies at `super_at` behind it.
fn like_end(like: &MemberRecord, super_at: Sectors) -> Sectors {
    let kept = like.super_at.checked_sub(like.data_at + like.data_len).unwrap_or_default();
    super_at.checked_sub(kept).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::create::{NewMember, Request, create};
    use crate::meta::md1::{V1_0, V1_1, V1_2};

    fn made(format: &'static Format, data_at: Option<u64>) -> (ArrayRecord, MemberRecord) {
        let member = || {
            let sectors = Sectors(300_000);
            Some(NewMember { sectors, device_uuid: [1; 16], write_mostly: false, failfast: false })
        };
        let creation = create(&Request {
            format,
            level: 1,
            layout: None,
            chunk: None,
            members: vec![member(), member()],
            name: Vec::new(),
            homehost: None,
            uuid: [1; 16],
            ctime: 1,
            size: Some(Sectors(100_000)),
            data_at: data_at.map(Sectors),
            assume_clean: true,
            zeroed: true,
            bitmap: None,
            log: None,
            force: false,
        })
        .unwrap();
        (creation.array.clone(), creation.members[0].member.clone())
    }

    #[test]
    fn data_begins_as_on_the_others_or_as_late_as_fits() {
        for (format, device, expected) in [
            (&V1_2, 400_000, Some(132_736)),
            (&V1_2, 232_736, Some(132_736)),
            (&V1_2, 232_735, Some(132_728)),
            (&V1_1, 100_100, Some(96)),
            (&V1_2, 100_000, None),
            (&V1_2, 100_020, None),
        ] {
            let (array, like) = made(format, Some(132_736));
            let plan = plan(format, &array, &like, None, Sectors(device), [2; 16]);
            assert_eq!(plan.ok().map(|p| p.data_at.0), expected, "{} {device}", format.name);
        }
        let (array, like) = made(&V1_0, None);
        for device in [100_032u64, 100_064, 150_001, 900_000] {
            let plan = plan(&V1_0, &array, &like, None, Sectors(device), [2; 16]).unwrap();
            assert_eq!((plan.data_at.0, plan.super_at.0), (0, (device - 16) & !7));
            assert!(plan.data_len >= array.component && plan.data_len < plan.super_at);
            assert_eq!(plan.bad_log.unwrap().end(), plan.super_at);
        }
        assert!(plan(&V1_0, &array, &like, None, Sectors(100_016), [2; 16]).is_err());
    }
}
