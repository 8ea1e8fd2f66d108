//! Ship, fetch, verify: over memory, directories and faulty stores.

#[cfg(feature = "aws")]
mod answers;
mod away;
mod basics;
mod branches;
mod claims;
mod copies;
mod faulty;
mod fixture;
mod following;
mod forks;
mod in_place;
mod kills;
mod machine;
mod moments;
mod processes;
mod promotions;
mod restored;
mod retained;
mod rounds;
mod scripted;
mod sentences;
#[cfg(feature = "aws")]
mod server;
mod slow;
mod unfinished;
mod verifying;
mod workers;
