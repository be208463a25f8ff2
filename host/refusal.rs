//! Every reason why a request is turned down before anything runs: what is wrong, the limit, and what was given.

/// A request that cannot be served as it stands.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Two tensors disagree on a dimension.
    #[error("{dimension} differs: {first} has {first_size}, {second} has {second_size}")]
    ShapeMismatch {
        /// The dimension's name.
        dimension: &'static str,
        /// One tensor.
        first: &'static str,
        /// Its size.
        first_size: usize,
        /// The other tensor.
        second: &'static str,
        /// Its size.
        second_size: usize,
    },
    /// Query heads are no multiple of key/value heads.
    #[error("{q_heads} query heads are not a multiple of {kv_heads} key/value heads")]
    HeadsNotMultiple {
        /// Heads of Q.
        q_heads: usize,
        /// Heads of K and V.
        kv_heads: usize,
    },
    /// The head dim is no multiple of 8, or of 16 in eight bits.
    #[error(
        "head dim {head_dim} is not a multiple of {multiple}; pad the last dimension with zeros and keep the scale"
    )]
    HeadDimNotMultiple {
        /// The head dim.
        head_dim: usize,
        /// What it must be a multiple of.
        multiple: usize,
    },
    /// A tensor's elements do not lie in its memory.
    #[error("{shape:?} with strides {strides:?} needs {needed} elements, the slice has {len}")]
    TooShort {
        /// Batch, heads, sequence length, head dim.
        shape: [usize; 4],
        /// Elements from one batch entry, head and row to the next.
        strides: [usize; 3],
        /// Elements that the layout spans.
        needed: usize,
        /// Elements that there are.
        len: usize,
    },
    /// Sizes or strides that no address can span.
    #[error("{shape:?} with strides {strides:?} spans more than 2^63 bytes")]
    Overflow {
        /// Batch, heads, sequence length, head dim.
        shape: [usize; 4],
        /// Elements from one batch entry, head and row to the next.
        strides: [usize; 3],
    },
    /// Two elements of the output share an address.
    #[error("elements of an output of {shape:?} overlap with strides {strides:?}")]
    OutputOverlaps {
        /// Batch, heads, sequence length, head dim.
        shape: [usize; 4],
        /// Elements from one batch entry, head and row to the next.
        strides: [usize; 3],
    },
    /// The scales of a tensor do not lie in their memory.
    #[error(
        "a tensor of {shape:?} with a scale for each {rows} rows needs {needed} scales, the slice has {len}"
    )]
    ScalesTooShort {
        /// Batch, heads, sequence length, head dim.
        shape: [usize; 4],
        /// Rows that share a scale.
        rows: usize,
        /// Floats that the scales span.
        needed: usize,
        /// Floats that there are.
        len: usize,
    },
    /// Keys and values are multiplied block by block.
    #[error(
        "{tensor} has a scale for each {rows} rows; that must be a multiple of {block}, or all {length} rows"
    )]
    ScaleRows {
        /// The tensor.
        tensor: &'static str,
        /// Rows that share a scale.
        rows: usize,
        /// What they must be a multiple of.
        block: usize,
        /// All rows.
        length: usize,
    },
    /// Tensors in eight bits have scales.
    #[error(
        "{tensor} is f8e4m3 and has no scales; give it some by TensorRef::with_scales, for instance one of 1 per tensor"
    )]
    ScalesMissing {
        /// The tensor.
        tensor: &'static str,
    },
    /// Only tensors in eight bits have scales.
    #[error("{tensor} is {input} and has scales: only f8e4m3 tensors have")]
    ScalesUnused {
        /// The tensor.
        tensor: &'static str,
        /// Element type.
        input: &'static str,
    },
    /// A precision was asked for that needs 16-bit tensors.
    #[error("tensors of {input} are multiplied as they are: leave the precision at its default")]
    PrecisionFixed {
        /// Element type.
        input: &'static str,
    },
    /// The output has a type that these inputs are not rounded to.
    #[error("inputs of {input} have outputs of the same type, not {output}")]
    OutputType {
        /// Element type of Q, K and V.
        input: &'static str,
        /// Element type of the output.
        output: &'static str,
    },
    /// The log-sum-exp has another size than `batch * q_heads * q_len`.
    #[error("the log-sum-exp needs {needed} floats (batch x query heads x query rows), the slice has {len}")]
    LseLength {
        /// What it must be.
        needed: usize,
        /// What it is.
        len: usize,
    },
    /// The scale is no number.
    #[error("scale {scale} is not finite")]
    ScaleNotFinite {
        /// The scale.
        scale: f32,
    },
    /// A mask has another number of dimensions than 2, 3 or 4.
    #[error("a mask has 2 to 4 dimensions, each with a stride; got {shape:?} with strides {strides:?}")]
    MaskDimensions {
        /// The mask's dimensions.
        shape: Vec<usize>,
        /// Its strides.
        strides: Vec<usize>,
    },
    /// A mask's elements do not lie in its memory.
    #[error("a mask of {shape:?} with strides {strides:?} needs {needed} elements, the slice has {len}")]
    MaskTooShort {
        /// Batch, query heads, query rows, keys.
        shape: [usize; 4],
        /// Elements from one to the next.
        strides: [usize; 4],
        /// Elements that the mask spans.
        needed: usize,
        /// Elements that there are.
        len: usize,
    },
    /// A mask does not broadcast to the scores.
    #[error("the mask's {dimension} is {size}; it must be 1 or {expected}")]
    MaskShape {
        /// The dimension's name.
        dimension: &'static str,
        /// Its size.
        size: usize,
        /// The call's.
        expected: usize,
    },
    /// A dropout rate is no probability below 1.
    #[error("dropout rate {rate} is not in 0..1")]
    DropoutRate {
        /// The rate.
        rate: f32,
    },
    /// Nothing to merge, or results that cannot be merged in one pass.
    #[error("{reason}")]
    Parts {
        /// Why.
        reason: &'static str,
    },
    /// A sequence is longer than a kernel counts.
    #[error("{tensor} has {rows} rows, the limit is {limit}")]
    TooManyRows {
        /// The tensor.
        tensor: &'static str,
        /// Its sequence length.
        rows: usize,
        /// The limit.
        limit: usize,
    },
    /// Rows lie too far apart.
    #[error("rows of {tensor} lie {bytes} bytes apart, the limit is {limit}; copy it to a denser layout")]
    RowStrideTooLarge {
        /// The tensor.
        tensor: &'static str,
        /// The stride in bytes.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// Batch entries or heads lie too far apart.
    #[error(
        "{what} of {tensor} is {bytes} bytes, the limit of bulk copies is {limit}; copy it to a denser layout"
    )]
    StrideTooLarge {
        /// The tensor.
        tensor: &'static str,
        /// The stride of which dimension.
        what: &'static str,
        /// The stride in bytes.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// A kernel copies 16 bytes at a time and cannot from this place.
    #[error(
        "{what} of {tensor} is {bytes}, not a multiple of {alignment} bytes, which GPU kernels need; copy it to an \
         aligned tensor, or use the cpu backend"
    )]
    Misaligned {
        /// The tensor.
        tensor: &'static str,
        /// Its address or the stride of a dimension.
        what: &'static str,
        /// The value in bytes, or what remains of the address.
        bytes: usize,
        /// What it must be a multiple of.
        alignment: usize,
    },
    /// More tiles than a grid has CTAs.
    #[error(
        "{tiles} query tiles (batch x heads x tiles of {rows} rows) exceed a grid's {limit}; split the batch"
    )]
    GridTooLarge {
        /// Tiles.
        tiles: usize,
        /// Rows of a tile.
        rows: usize,
        /// The limit.
        limit: usize,
    },
    /// Tensors in different kinds of memory.
    #[error("{first} lies in {first_memory} memory and {second} in {second_memory} memory; put all in one")]
    MixedMemory {
        /// One tensor.
        first: &'static str,
        /// Where it lies.
        first_memory: &'static str,
        /// The other tensor.
        second: &'static str,
        /// Where it lies.
        second_memory: &'static str,
    },
    /// Numbers in blocks that have a scale each are no whole number of blocks.
    #[error("{values} numbers are not a multiple of {block}, which share a scale; pad each row with zeros")]
    NotBlocks {
        /// Numbers.
        values: usize,
        /// Numbers that share a scale.
        block: usize,
    },
    /// Blocks of numbers and scales are not equally many.
    #[error("{values} numbers need {needed} scales, one for each {block}; there are {len}")]
    BlockScales {
        /// Numbers.
        values: usize,
        /// Numbers that share a scale.
        block: usize,
        /// Scales that they need.
        needed: usize,
        /// Scales that there are.
        len: usize,
    },
    /// A tensor's scale that its numbers cannot be divided by.
    #[error("a tensor's scale is {scale}; it must be positive and finite, and is 1 where none is wanted")]
    TensorScale {
        /// The scale.
        scale: f32,
    },
    /// A backend that computes on the host was given device memory.
    #[error("the {backend} backend works on host memory, the tensors lie in device memory")]
    DeviceMemory {
        /// The backend.
        backend: &'static str,
    },
}
