//! Events: the changes of the filter-wide state.

use super::{Event, Micros, Moment, State};
use crate::block::Layout;

/// The events of a kind with generations: steps, and banks that open and close.
pub trait Events {
    /// Returns the event that must come before an insert at `moment`, if any. The caller repeats
    /// the call until it returns `None`. The first call is made without stripe 0, as a hint, with
    /// sums that may be too high; the next ones under it. An event that is due at some sums must
    /// therefore also be due at higher ones.
    fn due(&self, state: &State<'_>, layout: Layout, moment: &Moment) -> Option<Event>;

    /// Applies an event to the filter-wide state. The bank table has been updated already.
    fn apply(&self, state: &State<'_>, layout: Layout, event: &Event);

    /// Returns a step to insert under although an event is due, because a stopped process delays
    /// the event for an unbounded time; `None` if the insert must wait. The event may have been
    /// decided already or may be decided later. In either case the key must not expire too early,
    /// and the record alone must determine what the insert does to its blocks.
    fn step_without(&self, state: &State<'_>, moment: &Moment) -> Option<u64> {
        let _ = (state, moment);
        None
    }

    /// Returns how far a key's time may lie ahead of an event that ends its key's step, if a
    /// process that did not see the key's time decided that event concurrently. An insert whose
    /// time is further ahead of the time in stripe 0 first records it there. Unlimited where events
    /// end no step before its time.
    fn grace(&self) -> Micros {
        Micros::MAX
    }
}
