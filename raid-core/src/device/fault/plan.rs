//! Fault plans: text in, rules out.

use crate::device::trace::Verb;
use crate::error::{Error, Result};
use crate::units::{SECTOR, Sectors, Slot};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Rules a plan may have.
const RULES_MAX: usize = 1000;

/// Longest delay: longer is a mistake in the unit.
const DELAY_MAX: Duration = Duration::from_secs(3600);

/// What goes wrong, and when.
///
/// | rule | effect |
/// |---|---|
/// | `eio` | the operation fails with EIO and nothing moves |
/// | `vanish` | this operation and all after it fail with ENODEV |
/// | `torn write after 512` | the first 512 bytes are written, then EIO |
/// | `lose write` | reports success and writes nothing |
/// | `flip 5000 bit 3` | reads give byte 5000 with bit 3 the other way round |
/// | `delay 20ms` | waits first (`us`, `ms`, `s`) |
///
/// A rule goes on with what it applies to, all of it optional and in any order: a verb (`read`,
/// `write`, `flush`, `discard`; else all that make sense), a range (`4096..8192`, `4K..`), and
/// when: `on 3` only the third operation that matches, `from 3` the third and later, `after 100`
/// the same as `from 101`, else every one. `at` before a range and `3rd` for `3` are fine, so this
/// is a plan, too: `EIO at 4096..8192 on 3rd read; torn write after 512 B; delay 20 ms`.
///
/// `seed 7` and `rate read 1e-4` make reads fail by chance, the same ones for the same seed.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Plan {
    /// The rules, in the order they are tried; all that match apply.
    pub rules: Vec<Rule>,
    /// Where the random faults come from.
    pub seed: u64,
    /// How likely a verb fails, by [`Verb`], from 0 to 1.
    pub rates: [f64; 4],
}

/// One thing that goes wrong.
#[derive(Clone, PartialEq, Debug)]
pub struct Rule {
    /// What happens.
    pub fault: Fault,
    /// To which operations; nothing: to all that make sense.
    pub verb: Option<Verb>,
    /// First sector and the one after the last; an operation that touches any of them matches.
    pub range: Option<(Sectors, Sectors)>,
    /// To which of those that match.
    pub when: When,
}

/// What happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Fails; nothing moves.
    Eio,
    /// Fails, and so does everything after it.
    Vanish,
    /// Writes that many bytes, whole sectors, then fails.
    Torn(u64),
    /// Is not done and reports success.
    Lose,
    /// Reads that bit of that byte of the device wrong.
    Flip {
        /// Byte on the device.
        byte: u64,
        /// Bit in it, 0 to 7.
        bit: u8,
    },
    /// Waits first.
    Delay(Duration),
}

/// To which of the operations that match a rule, counted from 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// To every one.
    Always,
    /// To that one.
    On(u64),
    /// To that one and all after it.
    From(u64),
}

impl When {
    /// Whether the `count`-th operation is meant.
    pub fn includes(self, count: u64) -> bool {
        match self {
            When::Always => true,
            When::On(n) => count == n,
            When::From(n) => count >= n,
        }
    }
}

impl Rule {
    /// Whether an operation is one of those the rule is for.
    pub fn matches(&self, verb: Verb, at: Sectors, len: Sectors) -> bool {
        let fits = match self.fault {
            Fault::Torn(_) => verb == Verb::Write,
            Fault::Flip { byte, .. } => {
                let sector = Sectors::floor_bytes(byte);
                verb == Verb::Read && at <= sector && sector < at + len
            }
            Fault::Lose => verb != Verb::Read,
            Fault::Eio | Fault::Vanish | Fault::Delay(_) => true,
        };
        fits && self.verb.is_none_or(|v| v == verb)
            && self.range.is_none_or(|(first, end)| at < end && first < at + len)
    }
}

impl Plan {
    /// A plan for an array: rules after `slot 1:` are for that slot until the next `slot`.
    ///
    /// # Errors
    /// As for a plan; also for rules before the first slot.
    pub fn parse_array(text: &str) -> Result<Vec<(Slot, Plan)>> {
        let mut plans: Vec<(Slot, Plan)> = Vec::new();
        let mut slot = None;
        for rule in rules_of(text) {
            let rule = match rule.split_once(':') {
                Some((head, rest)) => {
                    slot = Some(parse_slot(head)?);
                    rest.trim()
                }
                None => rule,
            };
            let Some(slot) = slot else {
                let text = format!("fault plan: `{rule}` stands before the first `slot N:`");
                return Err(Error::invalid(text));
            };
            let index = plans.iter().position(|(s, _)| *s == slot).unwrap_or_else(|| {
                plans.push((slot, Plan::default()));
                plans.len() - 1
            });
            if !rule.is_empty() {
                plans[index].1.add(rule)?;
            }
        }
        Ok(plans)
    }

    /// Whether the operation with this number fails by chance.
    pub(super) fn random_error(&self, verb: Verb, operation: u64) -> bool {
        let rate = self.rates[verb as usize];
        rate > 0.0 && mix(self.seed ^ mix(operation)) as f64 / (u64::MAX as f64) < rate
    }

    fn add(&mut self, rule: &str) -> Result<()> {
        let words: Vec<String> = words_of(rule);
        let wrong = |why: String| Error::invalid(format!("fault plan: `{rule}`: {why}"));
        let mut words = Words { words: &words };
        match words.peek() {
            Some("seed") => {
                words.next();
                self.seed = words.number().map_err(wrong)?;
            }
            Some("rate") => {
                words.next();
                let verb = words.verb().ok_or_else(|| wrong("name a verb".into()))?;
                self.rates[verb as usize] = words.rate().map_err(wrong)?;
            }
            _ if self.rules.len() == RULES_MAX => {
                return Err(wrong(format!("a plan has at most {RULES_MAX} rules")));
            }
            _ => self.rules.push(parse_rule(&mut words).map_err(wrong)?),
        }
        match words.peek() {
            None => Ok(()),
            Some(word) => Err(wrong(format!("`{word}` has no place here"))),
        }
    }
}

impl FromStr for Plan {
    type Err = Error;
    fn from_str(text: &str) -> Result<Plan> {
        let mut plan = Plan::default();
        rules_of(text).try_for_each(|rule| plan.add(rule))?;
        Ok(plan)
    }
}

/// A fixed function that scatters its input over all numbers (the finaliser of splitmix64).
fn mix(n: u64) -> u64 {
    let n = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

fn rules_of(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    lines.flat_map(|line| line.split(';')).map(str::trim).filter(|rule| !rule.is_empty())
}

fn parse_slot(head: &str) -> Result<Slot> {
    let number = head.trim().strip_prefix("slot").map(str::trim).and_then(|n| n.parse().ok());
    let wrong = || Error::invalid(format!("fault plan: found `{head}:`, expected `slot N:`"));
    number.map(Slot).ok_or_else(wrong)
}

/// Lower case words; a number and the unit behind it become one.
fn words_of(rule: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in rule.split_whitespace().map(str::to_lowercase) {
        let unit = matches!(&*word, "us" | "ms" | "s" | "b" | "bytes");
        match words.last_mut() {
            Some(last) if unit && last.ends_with(|c: char| c.is_ascii_digit()) => {
                last.push_str(if word == "bytes" { "b" } else { &word });
            }
            _ => words.push(word),
        }
    }
    words
}

type Parsed<T> = std::result::Result<T, String>;

fn parse_rule(words: &mut Words<'_>) -> Parsed<Rule> {
    let mut rule = Rule { fault: Fault::Eio, verb: None, range: None, when: When::Always };
    match words.next().unwrap_or_default() {
        "eio" => {}
        "vanish" => rule.fault = Fault::Vanish,
        "lose" => rule.fault = Fault::Lose,
        "delay" => rule.fault = Fault::Delay(words.time()?),
        "torn" => {
            words.skip("write");
            words.skip("after");
            rule.fault = Fault::Torn(words.number()?);
            rule.verb = Some(Verb::Write);
        }
        "flip" => {
            words.skip("read");
            words.skip("at");
            let byte = words.number()?;
            let bit = if words.skip("bit") { words.number()? } else { 0 };
            let bit = u8::try_from(bit).ok().filter(|b| *b < 8).ok_or("bits are 0 to 7")?;
            rule.fault = Fault::Flip { byte, bit };
        }
        word => {
            return Err(format!(
                "found `{word}`, expected eio, vanish, torn, lose, flip, delay, seed or rate"
            ));
        }
    }
    while let Some(word) = words.peek() {
        if let Some(verb) = words.verb() {
            rule.verb = Some(verb);
        } else if let Some(range) = parse_range(word)? {
            words.next();
            rule.range = Some(range);
        } else {
            words.next();
            rule.when = match word {
                "at" | "operations" | "ops" => continue,
                "on" => When::On(words.count()?),
                "from" => When::From(words.count()?),
                "after" => When::From(words.number()?.saturating_add(1)),
                _ => return Err(format!("`{word}` is not understood")),
            };
        }
    }
    Ok(rule)
}

/// `a..b` as sectors; nothing if it is not a range at all.
fn parse_range(word: &str) -> Parsed<Option<(Sectors, Sectors)>> {
    let Some((first, end)) = word.split_once("..") else { return Ok(None) };
    let first = if first.is_empty() { 0 } else { parse_bytes(first)? };
    let end = if end.is_empty() { u64::MAX - u64::MAX % SECTOR } else { parse_bytes(end)? };
    if first >= end {
        return Err(format!("the range {word} is empty"));
    }
    if first % SECTOR != 0 || end % SECTOR != 0 {
        return Err(format!("the range {word} is not whole sectors of {SECTOR} bytes"));
    }
    Ok(Some((Sectors(first / SECTOR), Sectors(end / SECTOR))))
}

fn parse_bytes(word: &str) -> Parsed<u64> {
    let plain = word.strip_suffix('b').unwrap_or(word);
    crate::device::spec::parse_bytes(plain).ok_or_else(|| format!("`{word}` is not a number"))
}

/// The words of a rule that are still to be read.
struct Words<'a> {
    words: &'a [String],
}

impl<'a> Words<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.words.first().map(String::as_str)
    }

    fn next(&mut self) -> Option<&'a str> {
        let (first, rest) = self.words.split_first()?;
        self.words = rest;
        Some(first)
    }

    /// Takes the next word if it is this one.
    fn skip(&mut self, word: &str) -> bool {
        let is = self.peek() == Some(word);
        if is {
            self.next();
        }
        is
    }

    /// Takes the next word if it is a verb.
    fn verb(&mut self) -> Option<Verb> {
        let verb = match self.peek()? {
            "read" | "reads" => Verb::Read,
            "write" | "writes" => Verb::Write,
            "flush" | "flushes" => Verb::Flush,
            "discard" | "discards" => Verb::Discard,
            _ => return None,
        };
        self.next();
        Some(verb)
    }

    fn number(&mut self) -> Parsed<u64> {
        parse_bytes(self.next().ok_or("a number is missing")?)
    }

    /// A number that counts, from 1: `3`, `3rd`.
    fn count(&mut self) -> Parsed<u64> {
        let word = self.next().ok_or("a number is missing")?;
        let digits = word.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let known = ["", "st", "nd", "rd", "th"].contains(&&word[digits.len()..]);
        match digits.parse() {
            Ok(0) => Err("operations are counted from 1".into()),
            Ok(n) if known => Ok(n),
            _ => Err(format!("`{word}` is not a number")),
        }
    }

    fn rate(&mut self) -> Parsed<f64> {
        let word = self.next().ok_or("a rate is missing")?;
        let rate = word.parse::<f64>().ok().filter(|r| (0.0..=1.0).contains(r));
        rate.ok_or_else(|| format!("`{word}` is not a rate from 0 to 1"))
    }

    fn time(&mut self) -> Parsed<Duration> {
        let word = self.next().ok_or("a time is missing")?;
        let unit = word.trim_start_matches(|c: char| c.is_ascii_digit());
        let nanos: u64 = match unit {
            "us" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            _ => return Err(format!("`{word}` is not a time: say 20ms, 100us or 2s")),
        };
        let number: u64 = word[..word.len() - unit.len()].parse().unwrap_or(u64::MAX);
        let time = number.checked_mul(nanos).map(Duration::from_nanos);
        let time = time.filter(|t| *t <= DELAY_MAX);
        time.ok_or_else(|| format!("`{word}` is longer than an hour"))
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = self.verb.map_or(String::new(), |v| format!(" {}", v.name()));
        match self.fault {
            Fault::Eio => write!(f, "eio{verb}")?,
            Fault::Vanish => write!(f, "vanish{verb}")?,
            Fault::Torn(bytes) => write!(f, "torn write after {bytes}")?,
            Fault::Lose => write!(f, "lose{verb}")?,
            Fault::Flip { byte, bit } => write!(f, "flip {byte} bit {bit}")?,
            Fault::Delay(time) => write!(f, "delay {}us{verb}", time.as_micros())?,
        }
        if let Some((first, end)) = self.range {
            write!(f, " {}..{}", first.bytes(), end.bytes())?;
        }
        match self.when {
            When::Always => Ok(()),
            When::On(n) => write!(f, " on {n}"),
            When::From(n) => write!(f, " from {n}"),
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts: Vec<String> = self.rules.iter().map(Rule::to_string).collect();
        for verb in [Verb::Read, Verb::Write, Verb::Flush, Verb::Discard] {
            let rate = self.rates[verb as usize];
            if rate > 0.0 {
                parts.push(format!("rate {} {rate:e}", verb.name()));
            }
        }
        if self.seed != 0 {
            parts.push(format!("seed {}", self.seed));
        }
        f.write_str(&parts.join("; "))
    }
}
