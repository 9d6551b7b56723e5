//! The placement of every sector against arrays that the kernel ran, as checksums.

use super::*;

/// Placements of 239 arrays that the kernel made, as checksums.
#[test]
fn placements_are_the_kernels() {
    let (mut seen, mut collisions) = (0, 0);
    for line in include_str!("placements.txt").lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<&str> = line.split(' ').collect();
        let [level, word, slots, chunk, component, size, crc] = fields[..] else {
            panic!("seven fields: {line}")
        };
        let params = Params {
            layout: names::number(word).unwrap(),
            chunk: Sectors(chunk.parse().unwrap()),
            slots: slots.parse().unwrap(),
            component: Sectors(component.parse().unwrap()),
            members: Vec::new(),
        };
        seen += 1;
        let made = make(level.parse().unwrap(), &params);
        if crc == "collides" {
            assert_eq!(made.unwrap_err().kind, ErrorKind::Refused, "{line}");
            collisions += 1;
            continue;
        }
        let layout = made.unwrap();
        assert_eq!(layout.shape().size, Sectors(size.parse().unwrap()), "{line}");
        assert_eq!(format!("{:08x}", placement_crc(&*layout)), crc, "{line}");
    }
    assert_eq!((seen, collisions), (239, 26));
}

/// See the head of `placements.txt` for what is summed.
fn placement_crc(layout: &dyn Layout) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    let mut put = |number: u64| crc.update(&(number as u32).to_le_bytes());
    for sector in (0..layout.shape().size.0).map(Sectors) {
        let stripe = layout.stripe(layout.locate(sector));
        let (index, within) =
            ((sector - stripe.start).div_floor(stripe.len), sector.rem(stripe.len));
        if layout.shape().code == Code::Copy {
            for unit in &stripe.units {
                put(unit.slot.0 as u64);
                put((unit.at + within).0);
            }
            continue;
        }
        let slot_of =
            |role| stripe.units.iter().find(|unit| unit.role == role).map(|unit| unit.slot.0);
        let unit = &stripe.units[index as usize];
        put(unit.slot.0 as u64);
        put((unit.at + within).0);
        put(slot_of(Role::P).unwrap() as u64);
        put(slot_of(Role::Q).map_or(u64::MAX, u64::from));
        put(unit.power as u64);
    }
    crc.finalize()
}
