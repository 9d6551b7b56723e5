//! Large reads that are answered with memory of the volume, without a copy on the way.

use raid_fuse::export::connection::LENT_MIN;
use raid_tests::mount::memory;
use raid_tests::requires::{Need, met};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

#[test]
fn what_is_lent_arrives_as_it_is() {
    if !met(&[Need::Fuse]) {
        return;
    }
    let size = (4 << 20) + 700;
    let (volume, mount) = memory(size as u64);
    let (file, bytes) = (File::open(mount.file()).unwrap(), volume.bytes());
    let mut buf = vec![0; 3 << 20];
    // The last is in more pieces than one reply can have: it is read as usual.
    for (piece, lent) in [(64 << 10, true), (4097, true), (1 << 20, true), (100, false)] {
        volume.lends.store(piece, Ordering::SeqCst);
        volume.reads.lock().unwrap().clear();
        for at in [0, 1, 511, 65_536, 1 << 20, size - (2 << 20)] {
            let got = file.read_at(&mut buf, at as u64).unwrap();
            let want = &bytes[at..size.min(at + buf.len())];
            assert!(buf[..got] == *want, "pieces of {piece}, at {at}");
        }
        let copied = volume.reads.lock().unwrap().iter().any(|&len| len >= LENT_MIN);
        assert_eq!(copied, !lent, "pieces of {piece}");
    }
    // What went away meanwhile is an error of that read, and of no other.
    volume.lends.store(4096, Ordering::SeqCst);
    volume.vanishes.store(true, Ordering::SeqCst);
    let error = file.read_at(&mut buf[..1 << 20], 0).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EIO));
    volume.vanishes.store(false, Ordering::SeqCst);
    assert_eq!(file.read_at(&mut buf[..1 << 20], 0).unwrap(), 1 << 20);
    assert!(buf[..1 << 20] == bytes[..1 << 20]);
}
