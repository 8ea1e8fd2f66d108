//! The state of a filter in memory as a snapshot, from which the engine continues.

use crate::engine::time::filter_time::latest_of_stripes;
use crate::image::Control;
use crate::snapshot::frame_writer::SnapshotWriter;
use crate::snapshot::save::{beside, copy, shorten};
use crate::snapshot::{Content, Frame};
use ebbtide_core::block::OWN_WORDS;
use ebbtide_core::kind::copy::used;
use ebbtide_core::machine::Machine;
use std::io;

/// Writes the content of a filter in memory, and the positions and claims of an image, as of an
/// LSN. `advance` is called after each block. If the kind `used_time`, the snapshot's time is at
/// least the image's: heartbeats, and records that the log no longer has, have advanced that too.
/// Other kinds only record a clock, which may have been ahead.
///
/// # Errors
/// Those of the medium, including a full disk.
pub(crate) fn save(
    writer: &mut SnapshotWriter,
    machine: &Machine,
    (header, used_time): (&Control, bool),
    lsn: u64,
    advance: impl Fn(),
) -> io::Result<()> {
    let frame = |content, bank, index| Frame { content, bank, index, lsn };
    // The state block has no words beside its cells.
    let mut words = vec![0; OWN_WORDS];
    words.extend(machine.content().state_words());
    shorten(&mut words);
    writer.frame(&frame(Content::State, 0, 0), &words)?;
    beside(header, |content, index, words| writer.frame(&frame(content, 0, index), words))?;
    let told = latest_of_stripes(header).word();
    let uses_time = used_time && machine.kind().uses_time();
    let is_later = uses_time && told > machine.latest().word();
    for (index, sums) in (0..).zip(machine.content().sums()) {
        let time = if is_later && index == 0 { told } else { sums.time };
        let words = [sums.inserts, time, sums.new_bits];
        writer.frame(&frame(Content::Stripe, 0, index), &words)?;
    }
    machine.content().try_each_block(|bank, block| {
        copy(&used(machine.kind(), block), &mut words);
        shorten(&mut words);
        advance();
        writer.frame(&frame(Content::Block, bank, block.number), &words)
    })
}
