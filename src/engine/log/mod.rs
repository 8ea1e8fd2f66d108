//! The log of an open filter: `append` reserves slots and publishes records, `space` maps and
//! allocates it, `group_commit` makes it durable. `tickets` tells callers when what they did is
//! durable; `ticket_list` is the list of those that wait.

pub mod append;
pub mod group_commit;
pub mod space;
pub mod ticket_list;
pub mod tickets;
