//! Many threads, handles and processes on one filter: their operations, and readers beside them; and
//! a model of the protocol between processes.

mod attach;
mod protocol;
mod reader;
mod readers;
mod threads;
