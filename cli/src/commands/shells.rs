//! `completions` and `man`: what packages install beside the command.

use crate::args::{Completions, Man};
use crate::failure::{Failure, Result};
use crate::help;
use crate::output::Output;
use clap::Command;
use clap_mangen::Man as Page;
use std::path::Path;

/// Prints the completions.
pub fn completions(arguments: &Completions) -> Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(arguments.shell, &mut help::command(), "ebbtide", &mut text);
    print(&text)
}

/// Prints or writes manual pages.
pub fn man(arguments: &Man) -> Result<()> {
    let mut command = help::command().disable_help_subcommand(true);
    command.build();
    let commands: Vec<_> = command.get_subcommands().cloned().collect();
    if let Some(dir) = &arguments.output {
        std::fs::create_dir_all(dir)
            .map_err(|error| Failure::Error(format!("cannot create {}: {error}", dir.display())))?;
        write(dir, "ebbtide", &page(command)?)?;
        return commands.into_iter().try_for_each(|one| {
            let name = format!("ebbtide-{}", one.get_name());
            write(dir, &name, &page(one)?)
        });
    }
    let asked = match &arguments.name {
        None => command,
        Some(name) => commands
            .into_iter()
            .find(|one| one.get_name() == name)
            .ok_or_else(|| Failure::Error(format!("{name} is no command; see ebbtide --help")))?,
    };
    print(&page(asked)?)
}

/// Returns the page of a command, in roff.
fn page(command: Command) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    let source = concat!("ebbtide ", env!("CARGO_PKG_VERSION"));
    let page = Page::new(command.version(env!("CARGO_PKG_VERSION")));
    let rendered = page.manual("ebbtide").source(source).render(&mut text);
    rendered.map_err(|error| Failure::Error(format!("cannot render a page: {error}")))?;
    Ok(text)
}

fn write(dir: &Path, name: &str, text: &[u8]) -> Result<()> {
    let path = dir.join(format!("{name}.1"));
    std::fs::write(&path, text)
        .map_err(|error| Failure::Error(format!("cannot write {}: {error}", path.display())))
}

fn print(text: &[u8]) -> Result<()> {
    let mut output = Output::new()?;
    output.line(text.strip_suffix(b"\n").unwrap_or(text), b'\n')?;
    output.flush()
}
