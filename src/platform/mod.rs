//! What the operating system does to a process: forks, and signals to its threads.

pub mod fork;
pub mod per_process;
pub mod threads;
