//! `raid-fuse parity`: parity of a few values by hand, and why it is XOR and not addition.

use super::out;
use super::values::{decimal, hex, hexadecimal};
use raid_core::error::{Error, Result};
use raid_core::teach::Parity;
use serde_json::{Value, json};
use std::fmt::Write;
use std::process::ExitCode;

/// Longest value that is added: its sums are computed in 128 bits.
const ADD_LEN_MAX: usize = 8;

/// Most values: pairs of losses are told one by one.
const VALUES_MAX: usize = 64;

/// Compute parity by hand: P, with --raid6 also Q, and what comes back after a loss
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Values are hexadecimal, of any but equal length; with --decimal bytes from 0 to 255.
In Q the first value counts as 2^0, the next as 2^1, and so on.

Examples:
  raid-fuse parity AB9C AABB 0098 549C
  raid-fuse parity --raid6 44 11 22 33
  raid-fuse parity --op add --decimal 7 2         why addition seems to work
  raid-fuse parity --op add --decimal 200 100     and where it does not")]
pub struct Args {
    /// The data units
    #[arg(value_name = "VALUES", required = true)]
    values: Vec<String>,

    /// How parity is made: xor, or add to see why not
    #[arg(long, value_name = "OP", default_value = "xor")]
    op: Op,

    /// Also Q, the second parity of RAID 6
    #[arg(long, alias = "q")]
    raid6: bool,

    /// Values are decimal bytes
    #[arg(short, long)]
    decimal: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// How parity is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Op {
    Xor,
    Add,
}

/// Computes.
pub fn run(args: &Args) -> Result<ExitCode> {
    let read = if args.decimal { decimal } else { hexadecimal };
    let data = args.values.iter().map(|text| read(text)).collect::<Result<Vec<_>>>()?;
    if data.len() > VALUES_MAX {
        return Err(Error::invalid(format!("at most {VALUES_MAX} values are computed by hand")));
    }
    let print = Print { decimal: args.decimal };
    let (text, value) = match args.op {
        Op::Add if args.raid6 => {
            return Err(Error::invalid("--op add has no Q; leave out --raid6"));
        }
        Op::Add => {
            let sum = Sum::new(&data)?;
            (sum.text(print), sum.json(print))
        }
        Op::Xor => {
            let powers = (0..data.len()).map(|index| index as u8).collect();
            let parity = Parity::new(data, powers)?;
            (xor_text(&parity, args.raid6, print), xor_json(&parity, args.raid6, print))
        }
    };
    match args.json {
        true => out::json(&value)?,
        false => out::print(&text)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// How values are printed: as they were typed.
#[derive(Clone, Copy)]
struct Print {
    decimal: bool,
}

impl Print {
    fn value(self, bytes: &[u8]) -> String {
        if self.decimal { bytes[0].to_string() } else { hex(bytes) }
    }

    /// A number that may not fit into a unit of `len` bytes.
    fn number(self, number: i128, len: usize) -> String {
        let sign = if number < 0 { "-" } else { "" };
        let size = number.unsigned_abs();
        match self.decimal {
            true => format!("{sign}{size}"),
            false => format!("{sign}{size:0width$X}", width = 2 * len),
        }
    }
}

fn xor_text(parity: &Parity, raid6: bool, print: Print) -> String {
    let data = parity.data();
    let values: Vec<String> = data.iter().map(|unit| print.value(unit)).collect();
    let (p, q) = parity.pq();
    let (p_text, q_text) = (print.value(&p), print.value(&q));
    let mut out = String::new();
    for (index, value) in values.iter().enumerate() {
        let _ = writeln!(out, "D{index} = {value}");
    }
    let _ = writeln!(out, "P = {} = {p_text}", values.join(" ^ "));
    if raid6 {
        let terms = values.iter().enumerate().map(|(i, value)| format!("2^{i}*{value}"));
        let _ = writeln!(out, "Q = {} = {q_text}", terms.collect::<Vec<_>>().join(" ^ "));
    }
    out.push('\n');
    for lost in 0..data.len() {
        let others = values.iter().enumerate().filter(|(index, _)| *index != lost);
        let others: Vec<&str> = others.map(|(_, value)| value.as_str()).collect();
        let terms = [&others[..], &[p_text.as_str()]].concat().join(" ^ ");
        let back = print.value(&parity.from_p(lost, &p));
        let _ = writeln!(out, "without D{lost}: {terms} = {back}");
    }
    if raid6 {
        raid6_text(parity, &values, &p, &q, print, &mut out);
    }
    out
}

/// What Q is for: a value without P, and any two values.
fn raid6_text(
    parity: &Parity,
    values: &[String],
    p: &[u8],
    q: &[u8],
    print: Print,
    out: &mut String,
) {
    out.push('\n');
    for lost in 0..values.len() {
        let others = values.iter().enumerate().filter(|(index, _)| *index != lost);
        let terms = others.map(|(index, value)| format!("2^{index}*{value}"));
        let terms: Vec<String> = terms.chain([print.value(q)]).collect();
        let (terms, back) = (terms.join(" ^ "), print.value(&parity.from_q(lost, q)));
        let _ = writeln!(out, "without D{lost} and P: ({terms}) / 2^{lost} = {back}");
    }
    out.push('\n');
    for one in 0..values.len() {
        for two in one + 1..values.len() {
            let (x, y) = parity.from_pq(one, two, p, q);
            let (x, y) = (print.value(&x), print.value(&y));
            let _ = writeln!(out, "without D{one} and D{two}: from P and Q {x} and {y}");
        }
    }
}

fn xor_json(parity: &Parity, raid6: bool, print: Print) -> Value {
    let (p, q) = parity.pq();
    let count = parity.data().len();
    let singles = (0..count).map(|lost| {
        json!({
            "lost": [lost],
            "from_p": print.value(&parity.from_p(lost, &p)),
            "from_q": raid6.then(|| print.value(&parity.from_q(lost, &q))),
        })
    });
    let pairs = (0..count).flat_map(|one| (one + 1..count).map(move |two| (one, two)));
    let pairs = pairs.filter(|_| raid6).map(|(one, two)| {
        let (x, y) = parity.from_pq(one, two, &p, &q);
        json!({ "lost": [one, two], "from_p_and_q": [print.value(&x), print.value(&y)] })
    });
    json!({
        "op": "xor",
        "values": parity.data().iter().map(|unit| print.value(unit)).collect::<Vec<_>>(),
        "p": print.value(&p),
        "q": raid6.then(|| print.value(&q)),
        "recovered": singles.chain(pairs).collect::<Vec<_>>(),
    })
}

/// Parity as it is taught where XOR is thought too hard: as a sum.
struct Sum {
    values: Vec<i128>,
    /// Bytes of a unit.
    len: usize,
    total: i128,
    /// What a unit of the size of the others keeps of the total.
    kept: i128,
    /// The XOR of the same values.
    xor: i128,
}

impl Sum {
    fn new(data: &[Vec<u8>]) -> Result<Sum> {
        let len = data.first().map_or(0, Vec::len);
        if len == 0 || len > ADD_LEN_MAX || data.iter().any(|unit| unit.len() != len) {
            return Err(Error::invalid(format!(
                "the values to add must be as long as each other, 1 to {ADD_LEN_MAX} bytes"
            )));
        }
        let number = |unit: &Vec<u8>| unit.iter().fold(0, |sum, &byte| sum << 8 | i128::from(byte));
        let values: Vec<i128> = data.iter().map(number).collect();
        let total = values.iter().sum();
        let kept = total & ((1 << (8 * len)) - 1);
        let xor = values.iter().fold(0, |xor, value| xor ^ value);
        Ok(Sum { values, len, total, kept, xor })
    }

    fn overflows(&self) -> bool {
        self.total != self.kept
    }

    /// Value `lost` from the kept sum and the others, by subtraction.
    fn back(&self, lost: usize) -> i128 {
        self.kept - (self.total - self.values[lost])
    }

    fn text(&self, print: Print) -> String {
        let number = |n: i128| print.number(n, self.len);
        let values: Vec<String> = self.values.iter().map(|&value| number(value)).collect();
        let (total, kept, bits) = (number(self.total), number(self.kept), 8 * self.len);
        let mut out = format!("sum = {} = {total}\n", values.join(" + "));
        if self.overflows() {
            let max = number((1 << bits) - 1);
            let _ = writeln!(
                out,
                "that does not fit: a unit of {bits} bits holds at most {max}; it keeps {kept}"
            );
        }
        out.push('\n');
        for (lost, value) in values.iter().enumerate() {
            let others = values.iter().enumerate().filter(|(index, _)| *index != lost);
            let others: Vec<&str> = others.map(|(_, value)| value.as_str()).collect();
            let terms = [&[kept.as_str()], &others[..]].concat().join(" - ");
            let back = number(self.back(lost));
            let verdict = match self.back(lost) == self.values[lost] {
                true => "right".to_string(),
                false => format!("wrong: it was {value}"),
            };
            let _ = writeln!(out, "without D{lost}: {terms} = {back}  {verdict}");
        }
        out.push('\n');
        out += match self.overflows() {
            false => {
                "here the sum fits, so subtraction brings every value back; larger values \
                      overflow\n"
            }
            true => {
                "the carry that did not fit is lost, and with it the value; only arithmetic \
                     that wraps\nat the same size would bring it back\n"
            }
        };
        let _ = writeln!(
            out,
            "XOR has no carry: {} = {}, always as long as the values, and the same operation goes \
             back",
            values.join(" ^ "),
            number(self.xor)
        );
        out
    }

    fn json(&self, print: Print) -> Value {
        let number = |n: i128| print.number(n, self.len);
        let recovered = (0..self.values.len()).map(|lost| {
            json!({
                "lost": [lost],
                "from_sum": number(self.back(lost)),
                "right": self.back(lost) == self.values[lost],
            })
        });
        json!({
            "op": "add",
            "values": self.values.iter().map(|&value| number(value)).collect::<Vec<_>>(),
            "sum": number(self.total),
            "kept": number(self.kept),
            "overflows": self.overflows(),
            "xor": number(self.xor),
            "recovered": recovered.collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DECIMAL: Print = Print { decimal: true };

    #[test]
    fn small_sums_come_back_and_large_ones_do_not() {
        let small = Sum::new(&[vec![7], vec![2]]).unwrap();
        assert_eq!((small.total, small.overflows()), (9, false));
        assert_eq!((small.back(0), small.back(1)), (7, 2));
        let large = Sum::new(&[vec![200], vec![100]]).unwrap();
        assert_eq!((large.total, large.kept), (300, 44));
        assert_eq!(large.back(0), -56);
        let text = large.text(DECIMAL);
        assert!(text.contains("without D0: 44 - 100 = -56  wrong: it was 200"), "{text}");
        assert!(text.contains("200 ^ 100 = 172"), "{text}");
    }

    #[test]
    fn p_and_q_of_a_row_and_every_loss() {
        let values = [0x44, 0x11, 0x22, 0x33].map(|byte| vec![byte]).to_vec();
        let parity = Parity::new(values, vec![0, 1, 2, 3]).unwrap();
        let text = xor_text(&parity, true, Print { decimal: false });
        for expected in [
            "P = 44 ^ 11 ^ 22 ^ 33 = 44",
            "Q = 2^0*44 ^ 2^1*11 ^ 2^2*22 ^ 2^3*33 = 6B",
            "without D1: 44 ^ 22 ^ 33 ^ 44 = 11",
            "without D2 and P: (2^0*44 ^ 2^1*11 ^ 2^3*33 ^ 6B) / 2^2 = 22",
            "without D1 and D3: from P and Q 11 and 33",
        ] {
            assert!(text.contains(expected), "{expected} in {text}");
        }
    }

    #[test]
    fn the_longest_sums_are_exact() {
        let sum = Sum::new(&vec![vec![0xff; ADD_LEN_MAX]; VALUES_MAX]).unwrap();
        assert_eq!(sum.total, 64 * i128::from(u64::MAX));
        assert!(Sum::new(&[vec![0; ADD_LEN_MAX + 1]]).is_err());
    }
}
