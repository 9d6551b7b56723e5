//! A running array gets a write-intent bitmap, or loses it.

use crate::driver::Array;
use crate::engine::{Bitmap, DeviceId, Manage, Member, State};
use crate::error::{Error, ErrorKind, Result};
use crate::meta::Format;
use crate::meta::create::{NewBitmap, bitmap_place, plan_bitmap};
use crate::meta::md_bitmap::emit_new;
use crate::units::Sectors;

/// Gives `array`, whose metadata has this `format`, an internal bitmap. At first every region is
/// marked; those that nobody writes are cleared after a while.
///
/// # Errors
/// It has one, or a log, or no redundancy; a member has no room.
pub fn add_bitmap(array: &Array, format: &'static Format, wanted: &NewBitmap) -> Result<()> {
    let status = array.status();
    if status.bitmap.is_some() {
        return Err(Error::new(ErrorKind::Busy, "the array has a bitmap; first say --bitmap=none"));
    }
    let all = || status.members.iter().chain(&status.replacements).flatten().chain(&status.others);
    if all().any(|m| m.state == State::Journal || m.record.ppl.is_some()) {
        let text = "the array has a log, which closes the write hole; it takes no bitmap beside";
        return Err(Error::new(ErrorKind::Unsupported, text));
    }
    let head = plan_bitmap(format, wanted, &status.array)?;
    let len = head.area(Sectors::ZERO).len;
    let place = |member: &Member| -> Result<(DeviceId, Sectors)> {
        let at = bitmap_place(format, &status.array, &member.record, len);
        let full = || {
            let text = format!("{} has no room for a bitmap of {} sectors", member.name, len);
            Error::new(ErrorKind::Unsupported, text)
        };
        Ok((member.device, at.ok_or_else(full)?))
    };
    let told = all().filter(|m| m.state != State::Failed);
    let places = told.map(place).collect::<Result<Vec<_>>>()?;
    let image = emit_new(&head);
    let bitmap = Bitmap::load(image, &status.array.uuid, head.events, false)?;
    array.manage(Manage::Bitmap(Some((Box::new(bitmap), places))))
}

/// Takes the bitmap of `array` away: after a crash everything is resynced then.
///
/// # Errors
/// It has none.
pub fn remove_bitmap(array: &Array) -> Result<()> {
    if array.status().bitmap.is_none() {
        return Err(Error::invalid("the array has no bitmap"));
    }
    array.manage(Manage::Bitmap(None))
}
