//! [`ffpa_forward_raw`] as a C function, for benchmarks that call it beside other libraries in one process.

use std::ffi::{CString, c_char, c_void};
use std::sync::Mutex;

use ffpa::{
    Dtype, Engine, Error, ForwardOptions, Fp8, InputType, Mask, Precision, RawForward, RawTensor,
    ScoreNumbers, bf16, f16, ffpa_forward_raw,
};

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

/// A mask: address, element (0 bool, 1 f16, 2 bf16, 3 f32), shape, strides in elements.
#[repr(C)]
pub struct RawMask {
    address: u64,
    element: u64,
    shape: [u64; 4],
    strides: [u64; 4],
}

impl RawMask {
    /// # Safety
    /// As [`Mask::device`].
    unsafe fn mask(&self) -> Result<Mask<'static>, Error> {
        let (shape, strides) = (self.shape.map(|size| size as usize), self.strides.map(|step| step as usize));
        // SAFETY: the caller's.
        let mask = unsafe {
            match self.element {
                0 => Mask::device::<bool>(self.address, &shape, &strides),
                1 => Mask::device::<f16>(self.address, &shape, &strides),
                2 => Mask::device::<bf16>(self.address, &shape, &strides),
                _ => Mask::device::<f32>(self.address, &shape, &strides),
            }
        };
        Ok(mask?)
    }
}

/// Starts a forward call: 0 if it was started, 1 on an error.
///
/// # Safety
/// As [`ffpa_forward_raw`]; `engine` is from [`ffpa_open`], `tensors` are q, k, v and out, `mask` is null or a mask, and
/// `precision` is 0 for the tensors' own, 1 for FP8, 2 for FP8 with Q and K in integers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ffpa_forward(
    engine: *const Engine,
    is_bf16: bool,
    tensors: *const [Tensor; 4],
    lse: u64,
    causal: bool,
    mask: *const RawMask,
    precision: u32,
    stream: *mut c_void,
) -> i32 {
    // SAFETY: the caller's.
    let (engine, [q, k, v, out]) = unsafe { (&*engine, &*tensors) };
    let dtype = if is_bf16 { Dtype::Bf16 } else { Dtype::F16 };
    let call = RawForward {
        input: InputType::Sixteen(dtype),
        output: dtype,
        scales: [None; 3],
        q: q.raw(),
        k: k.raw(),
        v: v.raw(),
        out: out.raw(),
        lse,
        stream,
        workspace: 0,
    };
    let forward = || {
        let precision = match precision {
            0 => Precision::Native,
            1 => Precision::Fp8(Fp8::default()),
            _ => Precision::Fp8(Fp8::default().with_scores(ScoreNumbers::Int8)),
        };
        let mut options = ForwardOptions::new().with_causal(causal).with_precision(precision);
        // SAFETY: the caller's.
        options.mask = unsafe { mask.as_ref().map(|mask| mask.mask()) }.transpose()?;
        // SAFETY: the caller's.
        unsafe { ffpa_forward_raw(engine, &call, &options) }
    };
    match forward() {
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
