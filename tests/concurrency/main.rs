//! Many threads, handles and processes on one filter: their operations, and readers beside them.

mod attach;
mod faulty;
mod reader;
mod readers;
mod threads;
