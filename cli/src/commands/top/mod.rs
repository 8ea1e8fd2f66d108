//! `top`: filters live, in a terminal; or one view of each as text.

mod shown;
mod view;

use crate::failure::{Failure, Result};
use crate::operator_args::Top;
use crate::output::Output;
use crate::stop::Stop;
use ratatui::DefaultTerminal;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::Rect;
use shown::Shown;
use std::io::{IsTerminal, stdin, stdout};
use std::thread;
use std::time::{Duration, Instant};

/// The longest wait for a key before a signal is noticed.
const NOTICED: Duration = Duration::from_millis(100);

/// Shows filters until the user quits, or a signal.
pub fn top(arguments: &Top) -> Result<()> {
    let mut shown: Vec<_> = arguments.dirs.iter().map(|dir| Shown::new(dir)).collect();
    shown.iter_mut().for_each(Shown::look);
    let failed = shown.iter().filter_map(|shown| shown.seen.as_ref().err()).next();
    // A misspelt directory is an error; one that vanishes later is shown as such.
    if let Some(error) = failed {
        return Err(Failure::Error(error.clone()));
    }
    if arguments.once {
        return once(shown, arguments);
    }
    let dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    if dumb || !stdin().is_terminal() || !stdout().is_terminal() {
        return Err(Failure::Error(
            "top needs a terminal that can place the cursor; use top --once for text, or stat \
             --watch"
                .to_owned(),
        ));
    }
    let stop = Stop::on_signals()?;
    let failed =
        |error: std::io::Error| Failure::Error(format!("cannot use the terminal: {error}"));
    let mut terminal = ratatui::try_init().map_err(failed)?;
    let ended = run(&mut terminal, shown, arguments.interval, &stop);
    ratatui::try_restore().map_err(failed)?;
    ended.map_err(failed)?;
    stop.signal().map_or(Ok(()), |signal| Err(Failure::Stopped(signal)))
}

/// Prints one view of each filter.
fn once(mut shown: Vec<Shown>, arguments: &Top) -> Result<()> {
    thread::sleep(arguments.interval);
    shown.iter_mut().for_each(Shown::look);
    let (width, height) = arguments.size;
    let area = Rect::new(0, 0, width, height);
    let mut output = Output::new()?;
    for selected in 0..shown.len() {
        let mut buffer = Buffer::empty(area);
        view::draw(&mut buffer, area, &shown, selected);
        for y in 0..height {
            let cells = (0..width).filter_map(|x| buffer.cell((x, y)));
            let line: String = cells.map(|cell| cell.symbol()).collect();
            output.text(line.trim_end())?;
        }
    }
    output.flush()
}

/// Shows filters until a key or a signal ends it.
fn run(
    terminal: &mut DefaultTerminal,
    mut shown: Vec<Shown>,
    interval: Duration,
    stop: &Stop,
) -> std::io::Result<()> {
    let mut selected = 0;
    let mut due = Instant::now() + interval;
    while stop.signal().is_none() {
        terminal.draw(|frame| {
            let area = frame.area();
            view::draw(frame.buffer_mut(), area, &shown, selected);
        })?;
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            shown.iter_mut().for_each(Shown::look);
            due = Instant::now() + interval;
        } else if event::poll(left.min(NOTICED))?
            && let Event::Key(key) = event::read()?
        {
            match chosen(key, selected, shown.len()) {
                Some(next) => selected = next,
                None => break,
            }
        }
    }
    Ok(())
}

/// Returns the filter to show after a key; `None` to end.
fn chosen(key: KeyEvent, selected: usize, count: usize) -> Option<usize> {
    if key.kind == KeyEventKind::Release {
        return Some(selected);
    }
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    Some(match key.code {
        KeyCode::Char('q') | KeyCode::Esc => return None,
        KeyCode::Char('c' | 'd') if control => return None,
        KeyCode::Tab | KeyCode::Right | KeyCode::Down => (selected + 1) % count,
        KeyCode::BackTab | KeyCode::Left | KeyCode::Up => (selected + count - 1) % count,
        KeyCode::Char(digit @ '1'..='9') => {
            let number = digit as usize - '1' as usize;
            if number < count { number } else { selected }
        }
        _ => selected,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_switch_between_filters_and_end() {
        let press = |code| chosen(KeyEvent::new(code, KeyModifiers::NONE), 1, 3);
        assert_eq!(press(KeyCode::Tab), Some(2));
        assert_eq!(press(KeyCode::BackTab), Some(0));
        assert_eq!(press(KeyCode::Char('3')), Some(2));
        assert_eq!(press(KeyCode::Char('4')), Some(1));
        assert_eq!(press(KeyCode::Char('x')), Some(1));
        assert_eq!(press(KeyCode::Char('q')), None);
        let control = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(chosen(control, 1, 3), None);
        assert_eq!(chosen(KeyEvent::new(KeyCode::Tab, KeyModifiers::NONE), 2, 3), Some(0));
    }
}
