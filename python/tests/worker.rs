//! A Rust program that shares a filter with the tests of the Python package. It opens the filter of
//! its argument, and answers lines of its standard input:
//! `insert PREFIX COUNT`, `ask PREFIX COUNT` (how many are present), `digest`.

use ebbtide::{Any, Filter, Options};
use std::error::Error;
use std::io::{BufRead, Write, stdin, stdout};

fn answer(filter: &Filter, line: &str) -> Result<String, Box<dyn Error>> {
    let words: Vec<_> = line.split_whitespace().collect();
    let keys = |prefix: &str, count: &str| -> Result<Vec<String>, Box<dyn Error>> {
        let count: u64 = count.parse()?;
        Ok((0..count).map(|number| format!("{prefix}{number}")).collect())
    };
    Ok(match words[..] {
        ["insert", prefix, count] => filter.insert_all(&keys(prefix, count)?)?.to_string(),
        ["ask", prefix, count] => {
            let present = filter.contains_all(&keys(prefix, count)?)?;
            present.into_iter().filter(|&present| present).count().to_string()
        }
        ["digest"] => filter.digest()?.to_string(),
        _ => return Err(format!("an unknown line: {line}").into()),
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("the filter's directory is missing")?;
    let filter = Filter::<Any>::open(path, Options::new())?;
    println!("open");
    for line in stdin().lock().lines() {
        println!("{}", answer(&filter, &line?)?);
        stdout().flush()?;
    }
    Ok(filter.close()?)
}
