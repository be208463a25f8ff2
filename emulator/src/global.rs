//! Global memory: the buffers of a launch, at their real addresses, and nothing else.

use std::marker::PhantomData;

use crate::fault::{Fault, Place};

/// One range of bytes that a kernel may access.
pub struct Buffer<'a> {
    name: &'static str,
    base: u64,
    bytes: usize,
    writable: bool,
    borrow: PhantomData<&'a mut [u8]>,
}

impl<'a> Buffer<'a> {
    /// A buffer that the kernel may only read.
    pub fn read_only(name: &'static str, bytes: &'a [u8]) -> Self {
        Buffer { name, base: bytes.as_ptr() as u64, bytes: bytes.len(), writable: false, borrow: PhantomData }
    }

    /// A buffer that the kernel may read and write.
    pub fn read_write(name: &'static str, bytes: &'a mut [u8]) -> Self {
        Buffer {
            name,
            base: bytes.as_mut_ptr() as u64,
            bytes: bytes.len(),
            writable: true,
            borrow: PhantomData,
        }
    }

    /// The address of its first byte, as kernels see it.
    pub fn address(&self) -> u64 {
        self.base
    }
}

/// All buffers of a launch.
pub struct Buffers<'a>(pub Vec<Buffer<'a>>);

impl Buffers<'_> {
    /// Reads `N` bytes.
    pub(crate) fn read<const N: usize>(&self, address: u64, place: Place) -> Result<[u8; N], Fault> {
        self.check(address, N as u64, false, place)?;
        // SAFETY: the bytes lie in a buffer that was borrowed for this launch; kernels that write a buffer while
        // others read it race on hardware too, and no kernel here reads what a launch writes.
        Ok(unsafe { (address as *const [u8; N]).read_unaligned() })
    }

    /// Writes `N` bytes.
    pub(crate) fn write<const N: usize>(
        &self,
        address: u64,
        bytes: [u8; N],
        place: Place,
    ) -> Result<(), Fault> {
        self.check(address, N as u64, true, place)?;
        // SAFETY: the bytes lie in a buffer that was borrowed mutably for this launch.
        unsafe { (address as *mut [u8; N]).write_unaligned(bytes) };
        Ok(())
    }

    fn check(&self, address: u64, bytes: u64, write: bool, access: Place) -> Result<(), Fault> {
        if !address.is_multiple_of(bytes) {
            return Err(Fault::Misaligned { address, alignment: bytes, access });
        }
        let holds = |b: &&Buffer<'_>| address >= b.base && address + bytes <= b.base + b.bytes as u64;
        match self.0.iter().find(holds) {
            Some(buffer) if write && !buffer.writable => {
                Err(Fault::ReadOnly { buffer: buffer.name.into(), access })
            }
            Some(_) => Ok(()),
            None => Err(Fault::GlobalOutOfRange { address, nearest: self.nearest(address), access }),
        }
    }

    /// The buffer an address misses by least, in words.
    fn nearest(&self, address: u64) -> String {
        let distance = |b: &Buffer<'_>| {
            let end = b.base + b.bytes as u64;
            if address < b.base { b.base - address } else { address.saturating_sub(end) }
        };
        match self.0.iter().min_by_key(|b| distance(b)) {
            Some(b) if address < b.base => format!("{} bytes before {}", b.base - address, b.name),
            Some(b) => format!("byte {} of the {} bytes of {}", address - b.base, b.bytes, b.name),
            None => "the launch has none".into(),
        }
    }
}
