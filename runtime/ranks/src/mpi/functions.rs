//! The functions and constants of an MPI library, by its binary interface.
#![expect(unsafe_code, reason = "functions of a library that is opened at run time are called by pointers")]

use std::ffi::{c_char, c_int, c_void};

use super::library::{Interface, Opened};
use crate::RankError;

/// The space for an error message of any MPI library; the longest one has 512 bytes (MPICH).
const MESSAGE_SPACE: usize = 1024;

/// The constants of a binary interface. `H` is the type of its handles.
pub(super) struct Constants<H> {
    /// The communicator of all ranks, `MPI_COMM_WORLD`.
    world: H,
    /// The data type `MPI_BYTE`.
    byte: H,
    /// The error handler `MPI_ERRORS_RETURN`: functions return an error code.
    errors_return: H,
    /// The address `MPI_STATUS_IGNORE`.
    status_ignore: usize,
    /// The thread level `MPI_THREAD_SERIALIZED`: all threads may call MPI, one at a time.
    serialized: c_int,
}

/// The constants of MPICH, from the `mpi.h` of MPICH 4.0 and 5.0.
pub(super) const MPICH: Constants<c_int> =
    Constants { world: 0x4400_0000, byte: 0x4c00_010d, errors_return: 0x5400_0001, status_ignore: 1, serialized: 2 };

/// The constants of the MPI 5 standard, from its `mpi.h`.
pub(super) const STANDARD: Constants<usize> =
    Constants { world: 0x101, byte: 0x247, errors_return: 0x143, status_ignore: 0, serialized: 2048 };

/// Looks up the constants of Open MPI 4 or 5, most of which are addresses of variables.
///
/// # Errors
/// [`RankError::BadLibrary`] if the library lacks one.
pub(super) fn open_mpi_constants(opened: &Opened) -> Result<Constants<usize>, RankError> {
    // SAFETY: only the address of the variable is used.
    let address = |name| unsafe { opened.symbol::<*const c_void>(name) }.map(<*const c_void>::expose_provenance);
    Ok(Constants {
        world: address("ompi_mpi_comm_world")?,
        byte: address("ompi_mpi_byte")?,
        errors_return: address("ompi_mpi_errors_return")?,
        status_ignore: 0,
        serialized: 2,
    })
}

/// Defines the struct of the functions that are called, and the lookup of all of them in a library.
macro_rules! functions {
    ($($field:ident: $name:literal ($($kind:ty),* $(,)?);)*) => {
        /// The functions of an MPI library. `H` is the type of its handles.
        struct Functions<H> {
            $($field: unsafe extern "C" fn($($kind),*) -> c_int,)*
        }

        impl<H> Functions<H> {
            /// Looks up all functions.
            ///
            /// # Safety
            /// `H` is the type of the handles of the library.
            ///
            /// # Errors
            /// [`RankError::BadLibrary`] if the library lacks one.
            unsafe fn find(opened: &Opened) -> Result<Self, RankError> {
                Ok(Self {
                    // SAFETY: the types are those of the MPI standard, with the handles that the caller says.
                    $($field: unsafe { opened.symbol::<unsafe extern "C" fn($($kind),*) -> c_int>($name)? },)*
                })
            }
        }
    };
}

functions! {
    initialized: "MPI_Initialized" (*mut c_int);
    init_thread: "MPI_Init_thread" (*mut c_int, *mut *mut *mut c_char, c_int, *mut c_int);
    finalize: "MPI_Finalize" ();
    abort: "MPI_Abort" (H, c_int);
    comm_size: "MPI_Comm_size" (H, *mut c_int);
    comm_rank: "MPI_Comm_rank" (H, *mut c_int);
    comm_set_errhandler: "MPI_Comm_set_errhandler" (H, H);
    error_string: "MPI_Error_string" (c_int, *mut c_char, *mut c_int);
    isend: "MPI_Isend" (*const c_void, c_int, H, c_int, c_int, H, *mut H);
    irecv: "MPI_Irecv" (*mut c_void, c_int, H, c_int, c_int, H, *mut H);
    test: "MPI_Test" (*mut H, *mut c_int, *mut c_void);
}

/// An MPI library whose functions can be called. `H` is the type of its handles.
pub(super) struct Mpi<H> {
    /// The file name of the library.
    pub(super) name: String,
    pub(super) interface: Interface,
    functions: Functions<H>,
    constants: Constants<H>,
}

impl<H: Copy + Default> Mpi<H> {
    /// Looks up all functions of the library. Does not initialize MPI.
    ///
    /// # Safety
    /// `H` and `constants` are those of the library's binary interface.
    ///
    /// # Errors
    /// [`RankError::BadLibrary`] if the library lacks a function.
    pub(super) unsafe fn new(opened: Opened, constants: Constants<H>) -> Result<Self, RankError> {
        // SAFETY: the caller says so.
        let functions = unsafe { Functions::find(&opened)? };
        Ok(Self { name: opened.name, interface: opened.interface, functions, constants })
    }

    /// Initializes MPI, so that each thread may call it, one at a time, and functions return error codes. Returns the
    /// number of this rank and the count of ranks.
    ///
    /// # Errors
    /// - [`RankError::Call`] if a function fails or returns a number below 0.
    /// - [`RankError::BadLibrary`] if MPI is initialized already, which a process does only once, or the library may
    ///   only be used by one thread.
    pub(super) fn initialize(&self) -> Result<(usize, usize), RankError> {
        let bad = |why: &str| RankError::BadLibrary { library: self.name.clone(), why: why.to_owned() };
        let (calls, world) = (&self.functions, self.constants.world);
        let (mut flag, mut level, mut rank, mut count) = (0, 0, 0, 0);
        // SAFETY: each pointer is to a number that lives during the call; MPI allows null for the arguments of the
        // program.
        unsafe {
            self.check("MPI_Initialized", (calls.initialized)(&raw mut flag))?;
            if flag != 0 {
                return Err(bad("this process has initialized it before"));
            }
            let (none, wanted) = (std::ptr::null_mut(), self.constants.serialized);
            self.check("MPI_Init_thread", (calls.init_thread)(none, none.cast(), wanted, &raw mut level))?;
            let handler = (calls.comm_set_errhandler)(world, self.constants.errors_return);
            self.check("MPI_Comm_set_errhandler", handler)?;
            self.check("MPI_Comm_rank", (calls.comm_rank)(world, &raw mut rank))?;
            self.check("MPI_Comm_size", (calls.comm_size)(world, &raw mut count))?;
        }
        if level < self.constants.serialized {
            return Err(bad("it may be called by one thread only"));
        }
        let number = |value: c_int| usize::try_from(value).map_err(|_| bad("its ranks have numbers below 0"));
        Ok((number(rank)?, number(count)?))
    }

    /// Ends MPI, after which this process cannot use it again. Waits for the other ranks.
    ///
    /// # Errors
    /// [`RankError::Call`] if it fails.
    pub(super) fn finalize(&self) -> Result<(), RankError> {
        // SAFETY: the function has no arguments; MPI is initialized, and reports an error if it is not.
        self.check("MPI_Finalize", unsafe { (self.functions.finalize)() })
    }

    /// Ends all processes of the run with an exit code, this one included. Returns only if that fails.
    pub(super) fn abort(&self, code: i32) {
        // SAFETY: the communicator is that of all ranks. There is nothing to do if the function fails.
        unsafe { (self.functions.abort)(self.constants.world, code) };
    }

    /// Starts to send bytes to a rank, and returns the request to [`test`](Self::test).
    ///
    /// # Safety
    /// The bytes stay where they are and do not change until the request is complete, or for ever.
    ///
    /// # Errors
    /// [`RankError::Call`] if it fails.
    pub(super) unsafe fn send(&self, bytes: &[u8], rank: usize, tag: c_int) -> Result<H, RankError> {
        let (world, byte, mut request) = (self.constants.world, self.constants.byte, H::default());
        let (rank, length) = (to_int(rank)?, to_int(bytes.len())?);
        // SAFETY: as the caller says; the pointer is to a request that lives during the call.
        let code =
            unsafe { (self.functions.isend)(bytes.as_ptr().cast(), length, byte, rank, tag, world, &raw mut request) };
        self.check("MPI_Isend", code).map(|()| request)
    }

    /// Starts to receive bytes from a rank, and returns the request to [`test`](Self::test). A message that is longer
    /// than `bytes` makes it fail.
    ///
    /// # Safety
    /// The bytes stay where they are, and nothing reads or writes them, until the request is complete, or for ever.
    ///
    /// # Errors
    /// [`RankError::Call`] if it fails.
    pub(super) unsafe fn receive(&self, bytes: &mut [u8], rank: usize, tag: c_int) -> Result<H, RankError> {
        let (world, byte, mut request) = (self.constants.world, self.constants.byte, H::default());
        let (rank, length) = (to_int(rank)?, to_int(bytes.len())?);
        // SAFETY: as the caller says; the pointer is to a request that lives during the call.
        let code = unsafe {
            (self.functions.irecv)(bytes.as_mut_ptr().cast(), length, byte, rank, tag, world, &raw mut request)
        };
        self.check("MPI_Irecv", code).map(|()| request)
    }

    /// Whether a request is complete; then releases it and sets it to the null request, which counts as complete.
    ///
    /// # Errors
    /// [`RankError::Call`] if the operation of the request failed.
    pub(super) fn test(&self, request: &mut H) -> Result<bool, RankError> {
        let (mut flag, ignore) = (0, std::ptr::with_exposed_provenance_mut(self.constants.status_ignore));
        // SAFETY: the request is one that this library returned; the pointers are to values that live during the call.
        let code = unsafe { (self.functions.test)(request, &raw mut flag, ignore) };
        self.check("MPI_Test", code).map(|()| flag != 0)
    }

    /// Turns the error code of a function, 0 if it succeeded, into an error with the library's message.
    ///
    /// # Errors
    /// [`RankError::Call`] if the code is not 0.
    fn check(&self, function: &str, code: c_int) -> Result<(), RankError> {
        if code == 0 {
            return Ok(());
        }
        let (mut text, mut length) = ([0_u8; MESSAGE_SPACE], 0);
        // SAFETY: the text has room for the longest message of any library.
        let failed = unsafe { (self.functions.error_string)(code, text.as_mut_ptr().cast(), &raw mut length) };
        let text = text.get(..usize::try_from(length).unwrap_or(0)).filter(|text| failed == 0 && !text.is_empty());
        let why = text.map_or_else(|| format!("error {code}"), |text| String::from_utf8_lossy(text).into_owned());
        Err(RankError::Call { function: function.to_owned(), why })
    }
}

/// Converts a length or a number of a rank to the type that MPI uses.
///
/// # Errors
/// [`RankError::TooLong`] if it does not fit; no caller passes such a number.
fn to_int(number: usize) -> Result<c_int, RankError> {
    c_int::try_from(number).map_err(|_| RankError::TooLong { length: number as u64 })
}
