//! Single-steps a child. Contains every system call for which Rust has no safe function.
//!
//! A thread traces only the children that it has started itself. A tracee dies with its tracer.
#![expect(unsafe_code, reason = "ptrace, waitpid and the mark have no safe names")]

use std::ffi::{c_int, c_void};
use std::io::{Error, Result};
use std::mem::{offset_of, zeroed};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::ptr::{null_mut, without_provenance_mut};

/// The `si_code` of a trap after a single step into a system call and out of it, after any other
/// single step, at the instruction `int3`, and at a hardware breakpoint.
const TRAP_BRKPT: c_int = 1;
const TRAP_TRACE: c_int = 2;
const TRAP_KERNEL: c_int = 0x80;
const TRAP_HWBKPT: c_int = 4;

/// The offset of the debug registers for `PTRACE_POKEUSER`.
const DEBUG_REGISTERS: usize = offset_of!(libc::user, u_debugreg);
/// In debug register 7: enables breakpoint 0, for execution.
const FIRST_ON: usize = 1;

/// The reason why a tracee has stopped or ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// One instruction was executed.
    Step,
    /// It reached a [`mark`].
    Mark,
    /// It reached the breakpoint.
    Breakpoint,
    /// It ended with this exit code.
    Exit(c_int),
    /// Any other reason, in words.
    Other(String),
}

/// A traced child, killed and reaped when dropped.
#[derive(Debug)]
pub struct Tracee {
    pid: libc::pid_t,
    gone: bool,
}

/// In a child: asks its parent to trace it. Returns false if the system forbids that.
pub fn offer() -> bool {
    // SAFETY: takes no address.
    unsafe {
        libc::ptrace(libc::PTRACE_TRACEME, 0, null_mut::<c_void>(), null_mut::<c_void>()) == 0
    }
}

/// In a tracee: stops here. The compiler moves no code across it.
#[inline(never)]
pub fn mark() {
    // SAFETY: a trap that the tracer handles; the program continues after it without any change.
    unsafe { core::arch::asm!("int3") }
}

/// Makes the children of a command die with the thread that starts them, and have constant
/// addresses.
pub fn tame(command: &mut Command) -> &mut Command {
    let tame = || {
        // SAFETY: plain system calls that take numbers only.
        unsafe {
            libc::personality(libc::ADDR_NO_RANDOMIZE as _);
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        }
        Ok(())
    };
    // SAFETY: between fork and exec the closure makes system calls only: it allocates nothing and
    // takes no locks.
    unsafe { command.pre_exec(tame) }
}

/// In a child: returns whether its addresses are constant, as set by [`tame`].
pub fn is_tame() -> bool {
    // SAFETY: takes a number only; this one queries and changes nothing.
    let now = unsafe { libc::personality(0xffff_ffff) };
    now & libc::ADDR_NO_RANDOMIZE != 0
}

/// Pins this thread, and the children that it starts from now on, to one processor: the cost of a
/// step then falls to a third. `turn` selects one of the permitted processors.
pub fn stay_on_one_processor(turn: usize) {
    // SAFETY: the set is plain bits, for which zero is valid, and its size is passed.
    unsafe {
        let mut set: libc::cpu_set_t = zeroed();
        if libc::sched_getaffinity(0, size_of_val(&set), &mut set) != 0 {
            return;
        }
        let all: Vec<usize> =
            (0..libc::CPU_SETSIZE as usize).filter(|&at| libc::CPU_ISSET(at, &set)).collect();
        libc::CPU_ZERO(&mut set);
        libc::CPU_SET(all[turn % all.len()], &mut set);
        // If it is refused, the test is only slower.
        libc::sched_setaffinity(0, size_of_val(&set), &set);
    }
}

impl Tracee {
    /// Attaches to a child that will [offer](offer) to be traced.
    pub fn new(child: &Child) -> Self {
        Self { pid: child.id() as libc::pid_t, gone: false }
    }

    /// Returns the process id.
    pub fn id(&self) -> u32 {
        self.pid as u32
    }

    fn request(&self, request: libc::c_uint, at: usize, data: *mut c_void) -> Result<()> {
        let at = without_provenance_mut::<c_void>(at);
        // SAFETY: the callers pass the arguments that the request requires; memory that it writes
        // to outlives the call.
        match unsafe { libc::ptrace(request, self.pid, at, data) } {
            -1 => Err(Error::last_os_error()),
            _ => Ok(()),
        }
    }

    /// Waits until it stops or ends.
    pub fn wait(&mut self) -> Result<Stop> {
        let mut status = 0;
        // SAFETY: the status is written before the call returns.
        while unsafe { libc::waitpid(self.pid, &mut status, libc::__WALL) } != self.pid {
            let error = Error::last_os_error();
            if error.kind() != std::io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
        if libc::WIFEXITED(status) {
            self.gone = true;
            return Ok(Stop::Exit(libc::WEXITSTATUS(status)));
        }
        if libc::WIFSIGNALED(status) {
            self.gone = true;
            return Ok(Stop::Other(format!("it died of signal {}", libc::WTERMSIG(status))));
        }
        let signal = libc::WSTOPSIG(status);
        if signal != libc::SIGTRAP {
            return Ok(Stop::Other(format!("it got signal {signal} at {:#x}", self.place()?)));
        }
        // SAFETY: plain numbers, for which zero is valid.
        let mut info: libc::siginfo_t = unsafe { zeroed() };
        self.request(libc::PTRACE_GETSIGINFO, 0, (&raw mut info).cast())?;
        Ok(match info.si_code {
            TRAP_TRACE | TRAP_BRKPT => Stop::Step,
            TRAP_KERNEL => Stop::Mark,
            TRAP_HWBKPT => Stop::Breakpoint,
            other => Stop::Other(format!("it trapped with code {other}")),
        })
    }

    /// Lets it execute one instruction.
    pub fn step(&mut self) -> Result<Stop> {
        self.request(libc::PTRACE_SINGLESTEP, 0, null_mut())?;
        self.wait()
    }

    /// Lets it run until it has reached the instruction at `place` this many times, including its
    /// current position.
    pub fn run_to(&mut self, place: u64, times: u32) -> Result<Stop> {
        let register = |number: usize| DEBUG_REGISTERS + number * size_of::<libc::c_ulonglong>();
        self.request(libc::PTRACE_POKEUSER, register(0), without_provenance_mut(place as usize))?;
        self.request(libc::PTRACE_POKEUSER, register(7), without_provenance_mut(FIRST_ON))?;
        let (mut stop, mut left) = (Stop::Breakpoint, times);
        while left > 0 {
            self.request(libc::PTRACE_CONT, 0, null_mut())?;
            stop = self.wait()?;
            match stop {
                Stop::Breakpoint => left -= 1,
                // The system sometimes reports another reason; only the address matters.
                Stop::Step if self.place()? == place => left -= 1,
                Stop::Step => {}
                _ => break,
            }
        }
        if stop == Stop::Step {
            stop = Stop::Breakpoint;
        }
        if !self.gone {
            self.request(libc::PTRACE_POKEUSER, register(7), null_mut())?;
        }
        Ok(stop)
    }

    /// Lets it run until the next stop.
    pub fn resume(&mut self) -> Result<Stop> {
        self.request(libc::PTRACE_CONT, 0, null_mut())?;
        self.wait()
    }

    /// Returns the address of its next instruction.
    pub fn place(&self) -> Result<u64> {
        // SAFETY: plain numbers, for which zero is valid.
        let mut registers: libc::user_regs_struct = unsafe { zeroed() };
        self.request(libc::PTRACE_GETREGS, 0, (&raw mut registers).cast())?;
        Ok(registers.rip)
    }

    /// Makes it die with this process.
    pub fn bind(&self) -> Result<()> {
        let options = libc::PTRACE_O_EXITKILL as usize;
        self.request(libc::PTRACE_SETOPTIONS, 0, without_provenance_mut(options))
    }

    /// Kills and reaps it.
    pub fn kill(&mut self) {
        if self.gone {
            return;
        }
        // SAFETY: takes no address, and the id is that of a child not reaped yet.
        unsafe { libc::kill(self.pid, libc::SIGKILL) };
        while !self.gone && self.wait().is_ok() {}
        self.gone = true;
    }
}

impl Drop for Tracee {
    fn drop(&mut self) {
        self.kill();
    }
}
