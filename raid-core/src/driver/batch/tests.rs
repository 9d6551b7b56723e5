//! Batches: what is joined, what order is kept, who fails alone.

use super::*;
use crate::buf::Pool;
use crate::device::mem::MemDevice;
use crate::device::trace::{self, TraceDevice};
use std::sync::Arc;

fn traced() -> (Arc<TraceDevice>, Option<device::Shared>) {
    let trace = Arc::new(TraceDevice::new(Arc::new(MemDevice::new("m", Sectors(1024)).unwrap())));
    (trace.clone(), Some(trace))
}

#[test]
fn what_touches_goes_as_one_and_comes_back_in_place() {
    let (trace, device) = traced();
    let pool = Pool::new(0);
    let data: Vec<u8> = (0..16 * 512).map(|i| (i / 512) as u8).collect();
    let views = |from: usize, len: usize| [Buf::copy_of(&data[from * 512..][..len * 512]).freeze()];
    let mut batch = [
        MemberIo::write(0, Sectors(12), views(12, 4)),
        MemberIo::write(0, Sectors(0), views(0, 8)),
        MemberIo::write(0, Sectors(8), views(8, 4)),
    ];
    let results = Inline.run(std::slice::from_ref(&device), &mut batch);
    assert!(results.iter().all(Result::is_ok));
    assert_eq!(trace.count(trace::Verb::Write).operations, 1);
    let mut batch = [
        MemberIo::read(0, Sectors(9), [pool.take(512), pool.take(1024)]),
        MemberIo::read(0, Sectors(3), [pool.take(6 * 512)]),
        MemberIo::flush(0),
        MemberIo::flush(0),
    ];
    assert!(Inline.run(&[device], &mut batch).iter().all(Result::is_ok));
    assert_eq!(trace.count(trace::Verb::Read).operations, 1);
    assert_eq!(trace.count(trace::Verb::Flush).operations, 1);
    let Verb::Read(bufs) = &batch[0].verb else { panic!("still a read") };
    assert_eq!(bufs[0][..], [9; 512]);
    assert_eq!(bufs[1][512..], [11; 512]);
    let Verb::Read(bufs) = &batch[1].verb else { panic!("still a read") };
    assert!(bufs[0][..] == data[3 * 512..9 * 512]);
}

#[test]
fn an_operation_fails_alone() {
    let (_, device) = traced();
    let pool = Pool::new(0);
    let mut batch = [
        MemberIo::read(0, Sectors(1016), [pool.take(4096)]),
        MemberIo::read(0, Sectors(1024), [pool.take(512)]),
        MemberIo::read(7, Sectors(0), [pool.take(512)]),
        MemberIo::read(0, Sectors(0), [pool.take(100)]),
        MemberIo::flush(7),
        MemberIo::flush(7),
    ];
    let results = Inline.run(&[device], &mut batch);
    let ok: Vec<bool> = results.iter().map(Result::is_ok).collect();
    assert_eq!(ok, [true, false, false, false, false, false]);
    assert!(Inline.run(&[], &mut []).is_empty());
}
