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

/// Scales of a tensor: address, floats from one batch entry, head and block of rows to the next, rows of a block.
#[repr(C)]
pub struct RawScales {
    address: u64,
    strides: [u64; 3],
    rows: u64,
}

impl RawScales {
    /// Those at address 0 are none.
    fn raw(&self) -> Option<ffpa::RawScales> {
        let strides = self.strides.map(|stride| stride as usize);
        (self.address != 0).then_some(ffpa::RawScales {
            address: self.address,
            strides,
            rows: self.rows as usize,
        })
    }
}

/// A forward call.
#[repr(C)]
pub struct Call {
    /// q, k, v and out.
    tensors: [Tensor; 4],
    /// Those of q, k and v, if these have eight bits.
    scales: [RawScales; 3],
    /// Null for none.
    mask: *const RawMask,
    lse: u64,
    workspace: u64,
    stream: *mut c_void,
    /// Of q, k and v: 0 f16, 1 bf16, 2 e4m3.
    input: u32,
    /// Of out: 0 f16, 1 bf16.
    output: u32,
    causal: u32,
    /// 0 for the tensors' own, 1 for FP8, 2 for FP8 with Q and K in integers, 3 for NVFP4.
    precision: u32,
}

impl Call {
    fn raw(&self) -> RawForward {
        let dtype = |number| if number == 0 { Dtype::F16 } else { Dtype::Bf16 };
        let [q, k, v, out] = self.tensors.each_ref().map(Tensor::raw);
        RawForward {
            input: match self.input {
                2 => InputType::F8E4M3,
                number => InputType::Sixteen(dtype(number)),
            },
            output: dtype(self.output),
            q,
            k,
            v,
            out,
            scales: self.scales.each_ref().map(RawScales::raw),
            lse: self.lse,
            stream: self.stream,
            workspace: self.workspace,
        }
    }

    /// # Safety
    /// The mask is null or as [`RawMask::mask`] says.
    unsafe fn options(&self) -> Result<ForwardOptions<'static>, Error> {
        let precision = match self.precision {
            0 => Precision::Native,
            1 => Precision::Fp8(Fp8::default()),
            2 => Precision::Fp8(Fp8::default().with_scores(ScoreNumbers::Int8)),
            _ => Precision::NvFp4(NvFp4::default()),
        };
        let mut options = ForwardOptions::new().with_causal(self.causal != 0).with_precision(precision);
        // SAFETY: the caller's.
        options.mask = unsafe { self.mask.as_ref().map(|mask| mask.mask()) }.transpose()?;
        Ok(options)
    }
}

/// Starts a forward call: 0 if it was started, 1 on an error.
///
/// # Safety
/// As [`ffpa_forward_raw`]; `engine` is from [`ffpa_open`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ffpa_forward(engine: *const Engine, call: *const Call) -> i32 {
    // SAFETY: the caller's.
    let (engine, call) = unsafe { (&*engine, &*call) };
    // SAFETY: the caller's.
    let forward = || unsafe { ffpa_forward_raw(engine, &call.raw(), &call.options()?) };
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

/// Bytes of the workspace that a call wants; -1 on an error.
///
/// # Safety
/// As [`ffpa_forward`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ffpa_workspace(engine: *const Engine, call: *const Call) -> i64 {
    // SAFETY: the caller's.
    let (engine, call) = unsafe { (&*engine, &*call) };
    // SAFETY: the caller's.
    let plan = unsafe { call.options() }.and_then(|options| call.raw().plan(engine, &options));
    match plan {
        Ok(plan) => plan.workspace_bytes as i64,
        Err(error) => {
            say(error);
            -1
        }
    }
}
