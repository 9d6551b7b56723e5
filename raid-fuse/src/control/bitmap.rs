//! A write-intent bitmap, for an array that runs.

use super::{Control, Done};
use raid_core::assembly::{add_bitmap, remove_bitmap};
use raid_core::error::{Error, Result};
use raid_core::meta::create::NewBitmap;

impl Control {
    /// `internal` or `none`, as `mdadm --grow --bitmap`.
    pub(super) fn bitmap(&self, place: &str, chunk_bytes: Option<u32>) -> Result<Done> {
        match place {
            "internal" => {
                add_bitmap(self.array(), self.format(), &NewBitmap { chunk_bytes })?;
                Ok(Done::say("the array has a write-intent bitmap"))
            }
            "none" => {
                remove_bitmap(self.array())?;
                Ok(Done::say("the bitmap is gone; a crash costs a resync of everything now"))
            }
            other => {
                let text = format!("found bitmap `{other}`, expected internal or none");
                Err(Error::invalid(text))
            }
        }
    }
}
