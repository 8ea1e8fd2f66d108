//! Many threads, handles and processes on one filter: their operations, and readers beside them.

mod attach;
mod reader;
mod readers;
mod threads;
