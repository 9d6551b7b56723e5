//! The same steps by our commands and by mdadm on the kernel's md: the same states, the same
//! texts in `mdstat` and `md/`, the same bytes. The stories are those of mdadm's own tests.
//!
//! Each story runs on two copies of the same images: one mounted here, one assembled in the
//! guest, where all stories share one boot.

use raid_tests::cli::Desk;
use raid_tests::guards::wait_until;
use raid_tests::guest::{self, Script};
use raid_tests::images::MIB;
use raid_tests::pattern::first_difference;
use raid_tests::requires::{Need, met};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

const SIZE: u64 = 8 * MIB;

/// A story: what mdadm's suite calls it, how the array is made, its members, and the steps.
/// Words of a step are those of our commands; a `!` in front: it is refused.
struct Story {
    name: &'static str,
    create: &'static str,
    members: &'static str,
    steps: &'static [&'static str],
}

const STORIES: &[Story] = &[
    Story {
        name: "01r1fail",
        create: "-l 1 -n 4",
        members: "a b c d",
        steps: &[
            "fail c",
            "show",
            "fail b",
            "show",
            "!remove a",
            "remove b",
            "remove c",
            "add x",
            "add y",
            "wait",
            "show",
            "fail x",
            "show",
            "remove x",
            "!re-add x",
            "add x",
            "wait",
            "show",
        ],
    },
    Story {
        name: "01r5fail",
        create: "-l 5 -n 4 -c 64",
        members: "a b c d",
        steps: &[
            "show",
            "fail b",
            "show",
            "fail b",
            "remove b",
            "show",
            "add x",
            "wait",
            "show",
            "add b",
            "show",
            "fail a",
            "wait",
            "show",
            "remove failed",
            "show",
        ],
    },
    Story {
        name: "01replace, raid1",
        create: "-l 1 -n 2",
        members: "a b",
        steps: &[
            "add x",
            "replace a",
            "wait",
            "show",
            "remove a",
            "show",
            "add a",
            "replace b --with a",
            "wait",
            "show",
        ],
    },
    Story {
        name: "01replace, raid6",
        create: "-l 6 -n 4 -c 32",
        members: "a b c d",
        steps: &["add x", "add y", "show", "replace b --with y", "wait", "show", "remove failed"],
    },
    Story {
        name: "01replace, raid10",
        create: "-l 10 -n 4 -c 64",
        members: "a b c d",
        steps: &["add x", "replace d", "wait", "show", "remove d", "!remove c", "show"],
    },
    Story {
        name: "02r1add",
        create: "-l 1 -n 2",
        members: "a b",
        steps: &[
            "add x", "show", "fail a", "wait", "show", "remove a", "show", "fail x", "show",
            "!fail b",
        ],
    },
    Story {
        name: "00raid10, n2",
        create: "-l 10 -n 6 -c 128",
        members: "a b c d e f",
        steps: &["add x", "show", "fail b", "wait", "show"],
    },
    Story {
        name: "00raid10, n3",
        create: "-l 10 -p n3 -n 6 -c 128",
        members: "a b c d e f",
        steps: &["fail b", "show", "add x", "wait", "show"],
    },
    Story {
        name: "00raid10, f2",
        create: "-l 10 -p f2 -n 6 -c 128",
        members: "a b c d e f",
        steps: &["add x", "fail c", "wait", "show"],
    },
    Story {
        name: "re-add with a bitmap",
        create: "-l 5 -n 3 -c 64 -b internal",
        members: "a b c",
        steps: &[
            "fail b", "remove b", "re-add b", "wait", "show", "fail c", "re-add c", "wait", "show",
        ],
    },
    Story {
        name: "write-mostly and a check",
        create: "-l 1 -n 3",
        members: "a b c",
        steps: &["write-mostly b", "show", "check", "wait", "show", "repair", "wait", "show"],
    },
];

/// Files of `md/` that are compared; `*` is each member.
const FILES: &[&str] = &[
    "array_size",
    "array_state",
    "chunk_size",
    "component_size",
    "consistency_policy",
    "degraded",
    "last_sync_action",
    "layout",
    "level",
    "metadata_version",
    "mismatch_cnt",
    "raid_disks",
    "resync_start",
    "sync_action",
    "sync_completed",
    "sync_speed",
    "uuid",
    "bitmap/chunksize",
    "bitmap/location",
    "bitmap/metadata",
];
const MEMBER_FILES: &[&str] = &["errors", "offset", "size", "slot", "state"];

/// Spare devices of every story.
const SPARES: &str = "x y";

impl Story {
    fn devices(&self) -> Vec<&'static str> {
        self.members.split_whitespace().chain(SPARES.split_whitespace()).collect()
    }

    /// Images with an array and bytes in it.
    fn desk(&self) -> Desk {
        let desk = Desk::new();
        desk.members(&format!("{} {SPARES}", self.members), SIZE);
        desk.fine(&format!("create {} -N 0 --assume-clean {}", self.create, self.members));
        let bytes: Vec<u8> = (0..3 << 20).map(|i| (i / 509 * 7 + i) as u8).collect();
        fs::write(desk.path("bytes"), bytes).unwrap();
        let ran = desk.shell(&format!("raid-fuse write {} < bytes", self.members));
        assert_eq!(ran.code, 0, "{ran:?}");
        desk
    }

    /// The story as a part of the guest's script; the images are those in `dir`.
    fn script(&self, dir: &Path) -> String {
        let mut script = format!("echo 'STORY {}'\n", self.name);
        let mut line = |text: String| writeln!(script, "{text}").expect("writing to a string");
        for name in self.devices() {
            let image = guest::quote(&guest::path(&dir.join(name)));
            line(format!("{name}=$(losetup --find --show {image})"));
        }
        let members: String = self.members.split_whitespace().map(|m| format!(" ${m}")).collect();
        line(format!("mdadm -q --assemble /dev/md0{members}"));
        self.steps.iter().for_each(|step| line(mdadm(step)));
        line("mdadm -q --wait-clean /dev/md0 || true; mdadm -q --stop /dev/md0".into());
        let all: Vec<String> = self.devices().iter().map(|name| format!("${name}")).collect();
        line(format!("losetup -d {}", all.join(" ")));
        script
    }

    /// The names of this story instead of the guest's loop devices.
    fn translate(&self, text: &str) -> String {
        let devices = self.devices();
        let mut text = text.to_string();
        for (index, name) in devices.iter().enumerate().rev() {
            text = text.replace(&format!("loop{index}"), name);
        }
        text
    }

    /// The story by our commands.
    fn tell(&self, desk: &Desk) -> String {
        desk.folder("mnt");
        desk.fine(&format!("mount {} mnt", self.members));
        let mut told = String::new();
        for step in self.steps {
            let (verb, rest) = step.split_once(' ').unwrap_or((step, ""));
            match verb.strip_prefix('!') {
                _ if verb == "show" => told.push_str(&show(desk, &self.devices())),
                Some(verb) => {
                    let ran = desk.run(&format!("{verb} mnt {rest}"));
                    assert_ne!(ran.code, 0, "{}: {step}: {ran:?}", self.name);
                }
                None => drop(desk.fine(&format!("{verb} mnt {rest}"))),
            }
        }
        told
    }
}

/// A step as mdadm is told.
fn mdadm(step: &str) -> String {
    let (verb, rest) = step.split_once(' ').unwrap_or((step, ""));
    let word = |word: &str| match word {
        "failed" | "--with" => word.to_string(),
        name => format!("${name}"),
    };
    let rest: Vec<String> = rest.split_whitespace().map(word).collect();
    let rest = rest.join(" ");
    if let Some(verb) = verb.strip_prefix('!') {
        return format!("if mdadm -q /dev/md0 --{verb} {rest} 2>/dev/null; then exit 7; fi");
    }
    match verb {
        "show" => "show".into(),
        "wait" => "mdadm --wait /dev/md0 || true; sleep 0.3".into(),
        "check" | "repair" => format!("echo {verb} > /sys/block/md0/md/sync_action"),
        "write-mostly" => {
            format!("echo writemostly > /sys/block/md0/md/dev-${{{}#/dev/}}/state", &rest[1..])
        }
        _ => format!("mdadm -q /dev/md0 --{verb} {rest}"),
    }
}

/// The guest's `show`: mdstat, files, links and a checksum.
fn show_in_guest() -> String {
    let member_files = MEMBER_FILES.join(" ");
    format!(
        "show() {{\n\
         mdadm -q --wait-clean /dev/md0 || true\n\
         for try in $(seq 100); do\n\
         read -r now < /sys/block/md0/md/array_state; read -r job < /sys/block/md0/md/sync_action\n\
         [ \"$now $job\" = 'clean idle' ] && break; sleep 0.1\n\
         done\n\
         echo SHOW; grep -A1 '^md0' /proc/mdstat\n\
         cd /sys/block/md0/md\n\
         for file in {}; do [ -e $file ] && {{ v=; read -r v < $file || true; \
         echo \"$file $v\"; }}; done\n\
         for dev in dev-*; do for file in {member_files}; do read -r v < $dev/$file || true; \
         echo \"$dev/$file $v\"; done; done\n\
         for link in rd*; do [ -e $link ] && echo \"$link $(readlink $link)\"; done\n\
         cd /; cksum < /dev/md0\n\
         }}\n",
        FILES.join(" ")
    )
}

/// The same of a mount.
fn show(desk: &Desk, devices: &[&str]) -> String {
    let md = desk.path("mnt/md");
    let file = |name: &str| fs::read_to_string(md.join(name)).ok();
    assert!(wait_until(|| file("array_state").as_deref() == Some("clean\n")));
    let mdstat = fs::read_to_string(desk.path("mnt/mdstat")).unwrap();
    let lines: Vec<&str> = mdstat.lines().skip(1).take(2).collect();
    let mut text = format!("SHOW\n{}\n", lines.join("\n"));
    let mut line = |name: &str| {
        if let Some(value) = file(name) {
            writeln!(text, "{name} {}", value.trim_end()).expect("writing to a string");
        }
    };
    FILES.iter().for_each(|name| line(name));
    for device in devices {
        MEMBER_FILES.iter().for_each(|name| line(&format!("dev-{device}/{name}")));
    }
    for slot in 0..8 {
        let link = format!("rd{slot}");
        if let Ok(target) = fs::read_link(md.join(&link)) {
            writeln!(text, "{link} {}", target.display()).expect("writing to a string");
        }
    }
    let sum = desk.shell("cksum < mnt/volume");
    format!("{text}{}", sum.out)
}

#[test]
fn commands_do_to_an_array_what_mdadm_does() {
    if !met(&[Need::Guest, Need::Fuse]) {
        return;
    }
    let (ours, theirs): (Vec<Desk>, Vec<Desk>) =
        STORIES.iter().map(|story| (story.desk(), Desk::new())).unzip();
    let mut script = format!(
        "echo 0 > /sys/module/md_mod/parameters/start_ro\n\
         echo 500000 > /proc/sys/dev/raid/speed_limit_min\n\
         echo 500000 > /proc/sys/dev/raid/speed_limit_max\n{}",
        show_in_guest()
    );
    for ((story, ours), theirs) in STORIES.iter().zip(&ours).zip(&theirs) {
        for name in story.devices() {
            fs::copy(ours.path(name), theirs.path(name)).unwrap();
        }
        script.push_str(&story.script(theirs.dir()));
    }
    let guest = Script::new(script).start();
    let told: Vec<String> =
        STORIES.iter().zip(&ours).map(|(story, desk)| story.tell(desk)).collect();
    let output = guest.wait().expect_success();
    let mut parts = output.split("STORY ").skip(1);
    for ((story, told), (ours, theirs)) in STORIES.iter().zip(&told).zip(ours.iter().zip(&theirs)) {
        let part = parts.next().unwrap_or_else(|| panic!("{} is missing", story.name));
        let (name, expected) = part.split_once('\n').unwrap();
        assert_eq!(name, story.name);
        let said_by_mdadm = |line: &&str| line.starts_with("mdadm: ");
        let lines: Vec<&str> = expected.lines().filter(|line| !said_by_mdadm(line)).collect();
        let expected = story.translate(&format!("{}\n", lines.join("\n")));
        // Linux 6.1 forgets the link of a slot whose member was replaced; here it is kept.
        let forgotten = story.steps.iter().any(|step| step.starts_with("replace"));
        let kept = |line: &&str| !(forgotten && line.starts_with("rd"));
        let without = |text: &str| text.lines().filter(kept).map(|l| format!("{l}\n")).collect();
        let (expected, told): (String, String) = (without(&expected), without(told));
        let shows = |text: &str| text.split("SHOW\n").skip(1).map(str::to_string).collect();
        let (expected, told): (Vec<String>, Vec<String>) = (shows(&expected), shows(&told));
        assert_eq!(told.len(), expected.len(), "{}", story.name);
        for (index, (told, expected)) in told.iter().zip(&expected).enumerate() {
            let (told, expected) = (in_order(told), in_order(expected));
            assert_eq!(told, expected, "{}, show {index}", story.name);
        }
        compare_bytes(story, ours, theirs);
    }
}

/// The members of mdstat's first line by name: mdadm adds one it has chosen last. Without their
/// numbers: md gives the number of a device that left to the next one, here it is not used again.
fn in_order(text: &str) -> String {
    let (head, rest) = text.split_once('\n').unwrap_or((text, ""));
    let word = |word: &str| match (word.find('['), word.find(']')) {
        (Some(from), Some(to)) => format!("{}{}", &word[..from], &word[to + 1..]),
        _ => word.to_string(),
    };
    let mut words: Vec<String> = head.split(' ').map(word).collect();
    // `md0 : active raid1`, then the members.
    let members = words.len().min(4);
    words[members..].sort_unstable();
    format!("{}\n{rest}", words.join(" "))
}

/// What each of the two left can be read here, and is the same.
fn compare_bytes(story: &Story, ours: &Desk, theirs: &Desk) {
    ours.fine("unmount mnt");
    let read = |desk: &Desk| {
        let all = story.devices().join(" ");
        let ran = desk.shell(&format!("raid-fuse cat --degraded --length 3M {all} > out"));
        assert_eq!(ran.code, 0, "{}: {ran:?}", story.name);
        fs::read(desk.path("out")).unwrap()
    };
    let wanted = fs::read(ours.path("bytes")).unwrap();
    assert_eq!(first_difference(&read(ours), &wanted), None, "{}: ours", story.name);
    assert_eq!(first_difference(&read(theirs), &wanted), None, "{}: theirs", story.name);
}
