//! mdadm's own words, for hands that know them: each is answered by the command to type here.
//!
//! Nothing is done under mdadm's words: the two programs take their arguments in another order,
//! and what was half understood must not touch members.

use super::members::quoted;
use clap::Command;

/// Members and mount point, where a word does not say which.
const EXAMINE: &str = "examine MEMBER...";
const STATUS: &str = "status MOUNTPOINT";
const MOUNT: &str = "mount MEMBER... MOUNTPOINT";
const UNMOUNT: &str = "unmount MOUNTPOINT";
const CREATE: &str = "create -l LEVEL -n COUNT MEMBER...";
const GROW: &str = "grow MOUNTPOINT";
const ERASE: &str = "erase-superblock MEMBER...";
const SCAN: &str = "scan";

/// mdadm's modes: long, short, and what does that here.
const MODES: [(&str, &str, &str); 12] = [
    ("create", "C", CREATE),
    ("examine", "E", EXAMINE),
    ("examine-bitmap", "X", EXAMINE),
    ("detail", "D", STATUS),
    ("query", "Q", EXAMINE),
    ("assemble", "A", MOUNT),
    ("build", "B", CREATE),
    ("stop", "S", UNMOUNT),
    ("grow", "G", GROW),
    ("incremental", "I", MOUNT),
    ("wait", "W", "wait MOUNTPOINT"),
    ("zero-superblock", "", ERASE),
];

/// What `--manage` does to members of a running array, and its command here.
const MANAGE: [(&str, &str, &str); 8] = [
    ("add", "a", "add"),
    ("add-spare", "", "add"),
    ("re-add", "", "re-add"),
    ("remove", "r", "remove"),
    ("fail", "f", "fail"),
    ("set-faulty", "", "fail"),
    ("replace", "", "replace"),
    ("stop", "S", "unmount"),
];

/// Modes that people write without their dashes and that are no commands here.
const BARE: [&str; 5] = ["detail", "stop", "query", "build", "incremental"];

/// The line for somebody who typed mdadm's words: `typed` are those behind the program's name,
/// `program` is what is known here.
pub fn answer(typed: &[String], program: &Command) -> Option<String> {
    let (first, rest) = typed.split_first()?;
    let (word, command) = match first.as_str() {
        "create" => spares(rest, program)?,
        "--manage" | "manage" => {
            let found = rest.split_first().and_then(|(array, rest)| manage(array, rest));
            (first.clone(), found.map_or_else(manage_all, |(_, command)| command))
        }
        "--misc" => {
            let found = rest.first().and_then(|word| mode(word, rest));
            (first.clone(), found.unwrap_or_else(|| STATUS.into()))
        }
        "--monitor" | "--follow" | "-F" | "monitor" => (first.clone(), STATUS.into()),
        word if BARE.contains(&word) => (first.clone(), mode(&format!("--{word}"), rest)?),
        word if word.starts_with('-') => (first.clone(), mode(word, rest)?),
        array if program.find_subcommand(array).is_none() => manage(array, rest)?,
        _ => return None,
    };
    let name = command.split(' ').next().unwrap_or_default();
    let exists = program.find_subcommand(name).is_some();
    Some(match exists {
        true => format!("mdadm's {word} is `raid-fuse {command}`"),
        false => format!("mdadm's {word} has no counterpart here; see raid-fuse --help"),
    })
}

/// The command for a mode, by its long or short form; letters in one word as `-Es` go by the
/// first.
fn mode(word: &str, rest: &[String]) -> Option<String> {
    let is = |(long, short, _): &&(&str, &str, &str)| has_form(word, long, short);
    let (long, _, command) = MODES.iter().find(is)?;
    let wants_scan = |word: &str| word == "--scan" || !word.starts_with("--") && word.contains('s');
    let short = |word: &&str| word.starts_with('-');
    let scans = std::iter::once(word).chain(rest.iter().map(String::as_str));
    let scans = scans.filter(short).any(wants_scan);
    Some(match (*long, scans) {
        ("examine" | "query" | "assemble", true) => SCAN.into(),
        ("detail", true) => "status".into(),
        _ => (*command).into(),
    })
}

/// `mnt --fail b`: the option and the command with its words in our order.
fn manage(array: &str, rest: &[String]) -> Option<(String, String)> {
    let (word, members) = rest.split_first()?;
    if !word.starts_with('-') {
        return None;
    }
    let is = |(long, short, _): &&(&str, &str, &str)| has_form(word, long, short);
    let Some((_, _, command)) = MANAGE.iter().find(is) else {
        return mode(word, members).map(|command| (word.clone(), command));
    };
    // The next option is a command of its own.
    let own = members.iter().map(String::as_str).take_while(|word| !word.starts_with('-'));
    let words: Vec<&str> = [*command, array].into_iter().chain(own).collect();
    let needs = words.len() == 2 && *command != "unmount";
    let missing = if needs { " MEMBER" } else { "" };
    Some((word.clone(), format!("{}{missing}", quoted(words))))
}

fn manage_all() -> String {
    "add MOUNTPOINT MEMBER`, or `raid-fuse fail`, `remove`, `re-add`, `replace".into()
}

/// Spares of a new array, where they cannot be created with it.
fn spares(rest: &[String], program: &Command) -> Option<(String, String)> {
    let is = |word: &&String| {
        word.split('=').next() == Some("--spare-devices")
            || word.strip_prefix("-x").is_some_and(|n| n.chars().all(|c| c.is_ascii_digit()))
    };
    let word = rest.iter().find(is)?;
    let create = program.find_subcommand("create")?;
    let known = create.get_arguments().any(|arg| arg.get_long() == Some("spare-devices"));
    (!known).then(|| (word.clone(), "add MOUNTPOINT SPARE`, after `raid-fuse mount".into()))
}

/// `--long`, `--long=...`, or a word of letters that begins with the short one.
fn has_form(word: &str, long: &str, short: &str) -> bool {
    match word.strip_prefix("--") {
        Some(name) => name.split('=').next() == Some(long),
        None => !short.is_empty() && word.strip_prefix('-').is_some_and(|w| w.starts_with(short)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Cli;
    use super::answer;
    use clap::CommandFactory;

    fn said(line: &str) -> Option<String> {
        let typed: Vec<String> = line.split_whitespace().map(String::from).collect();
        answer(&typed, &Cli::command())
    }

    #[test]
    fn each_word_of_mdadm_has_its_command() {
        let cases = [
            ("--create /dev/md0 -l5 -n3 a b c", "--create is `raid-fuse create -l LEVEL -n"),
            ("-C /dev/md0", "-C is `raid-fuse create"),
            ("--examine a b", "--examine is `raid-fuse examine MEMBER...`"),
            ("-E a", "-E is `raid-fuse examine MEMBER...`"),
            ("-Es", "-Es is `raid-fuse scan`"),
            ("--examine --scan", "--examine is `raid-fuse scan`"),
            ("--detail mnt", "--detail is `raid-fuse status MOUNTPOINT`"),
            ("-D mnt", "-D is `raid-fuse status MOUNTPOINT`"),
            ("detail mnt", "detail is `raid-fuse status MOUNTPOINT`"),
            ("--detail --scan", "--detail is `raid-fuse status`"),
            ("--assemble mnt a b", "--assemble is `raid-fuse mount MEMBER... MOUNTPOINT`"),
            ("-A mnt a b", "-A is `raid-fuse mount MEMBER... MOUNTPOINT`"),
            ("--stop mnt", "--stop is `raid-fuse unmount MOUNTPOINT`"),
            ("-S mnt", "-S is `raid-fuse unmount MOUNTPOINT`"),
            ("stop mnt", "stop is `raid-fuse unmount MOUNTPOINT`"),
            ("--zero-superblock a", "--zero-superblock is `raid-fuse erase-superblock MEMBER...`"),
            ("mnt --fail b", "--fail is `raid-fuse fail mnt b`"),
            ("mnt -f b --remove b", "-f is `raid-fuse fail mnt b`"),
            ("mnt --add 'new'", "--add is `raid-fuse add mnt"),
            ("mnt --remove", "--remove is `raid-fuse remove mnt MEMBER`"),
            ("--manage mnt --fail b", "--manage is `raid-fuse fail mnt b`"),
            ("--manage", "--manage is `raid-fuse add MOUNTPOINT MEMBER`, or"),
            ("--misc --detail mnt", "--misc is `raid-fuse status MOUNTPOINT`"),
            ("--wait mnt", "--wait is `raid-fuse wait MOUNTPOINT`"),
        ];
        for (line, words) in cases {
            let said = said(line).unwrap_or_default();
            assert!(said.starts_with(&format!("mdadm's {words}")), "{line}: {said}");
            assert_eq!(said.lines().count(), 1, "{said}");
        }
        assert!(said("--grow mnt -n 4").is_some() && said("-G mnt").is_some());
    }

    #[test]
    fn our_own_words_are_left_alone() {
        for line in ["status mnt", "create -l5 -n3 a b c", "--help", "-V", "mnt", "statsu mnt", ""]
        {
            assert_eq!(said(line), None, "{line}");
        }
    }
}
