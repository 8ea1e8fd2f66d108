//! Tables of a paper's results beside ours, in Markdown, in the form in which the pages of
//! `docs/runs/papers/` contain them.

use std::fmt;

/// A table under a title.
pub struct Table {
    title: String,
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Creates a table without rows.
    pub fn new(title: &str, head: &[&str]) -> Self {
        let head = head.iter().map(|&name| name.to_owned()).collect();
        Self { title: title.to_owned(), head, rows: Vec::new() }
    }

    /// Adds a row, which has a cell for each column.
    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        assert_eq!(N, self.head.len(), "a cell for each column of {}", self.title);
        self.rows.push(cells.to_vec());
    }

    fn write_row(&self, f: &mut fmt::Formatter<'_>, row: &[String]) -> fmt::Result {
        for (column, cell) in row.iter().enumerate() {
            let all = std::iter::once(&self.head).chain(&self.rows);
            let width = all.map(|row| row[column].chars().count()).max().unwrap_or(0);
            write!(f, "| {cell:<width$} ")?;
        }
        writeln!(f, "|")
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "**{}**\n", self.title)?;
        self.write_row(f, &self.head)?;
        writeln!(f, "{}|", "|---".repeat(self.head.len()))?;
        self.rows.iter().try_for_each(|row| self.write_row(f, row))
    }
}
