//! [`ffpa_forward_raw`] as a C function, for benchmarks that call it beside other libraries in one process.

use std::ffi::{CString, c_char, c_void};
use std::sync::Mutex;

use ffpa::{Dtype, Engine, ForwardOptions, RawForward, RawTensor, ffpa_forward_raw};

static LAST: Mutex<Option<CString>> = Mutex::new(None);

/// Keeps a text for [`ffpa_last`].
fn say(text: impl ToString) {
    let text = CString::new(text.to_string()).unwrap_or_default();
    *LAST.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(text);
}

/// The name of the kernel that the last call ran, or the text of its error. Valid until the next call.
#[unsafe(no_mangle)]
pub extern "C" fn ffpa_last() -> *const c_char {
    let last = LAST.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    last.as_ref().map_or(std::ptr::null(), |text| text.as_ptr())
}

/// Opens a device; null on failure. The engine lives until the process ends.
#[unsafe(no_mangle)]
pub extern "C" fn ffpa_open(device: u32) -> *const Engine {
    match Engine::cuda(device) {
        Ok(engine) => Box::leak(Box::new(engine)),
        Err(error) => {
            say(error);
            std::ptr::null()
        }
    }
}

/// One tensor: address, shape, strides in elements.
#[repr(C)]
pub struct Tensor {
    address: u64,
    shape: [u64; 4],
    strides: [u64; 3],
}

impl Tensor {
    fn raw(&self) -> RawTensor {
        let shape = self.shape.map(|size| size as usize);
        RawTensor { address: self.address, shape, strides: self.strides.map(|stride| stride as usize) }
    }
}

/// Starts a forward call: 0 if it was started, 1 on an error.
///
/// # Safety
/// As [`ffpa_forward_raw`]; `engine` is from [`ffpa_open`], and `tensors` are q, k, v and out.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ffpa_forward(
    engine: *const Engine,
    is_bf16: bool,
    tensors: *const [Tensor; 4],
    lse: u64,
    causal: bool,
    stream: *mut c_void,
) -> i32 {
    // SAFETY: the caller's.
    let (engine, [q, k, v, out]) = unsafe { (&*engine, &*tensors) };
    let dtype = if is_bf16 { Dtype::Bf16 } else { Dtype::F16 };
    let call = RawForward { dtype, q: q.raw(), k: k.raw(), v: v.raw(), out: out.raw(), lse, stream };
    // SAFETY: the caller's.
    match unsafe { ffpa_forward_raw(engine, &call, &ForwardOptions::new().with_causal(causal)) } {
        Ok(report) => {
            say(report.kernel);
            0
        }
        Err(error) => {
            say(error);
            1
        }
    }
}
