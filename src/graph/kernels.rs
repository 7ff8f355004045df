//! The compiled kernels of a model on a device: those that every step shares, and those of a class of row
//! counts. All are compiled when the backend is made; no step ever waits for a compiler.

use super::Error;
use super::decode::Edit;
use super::weights::{DeviceMixer, DeviceWeights, Layer, Moe};
use crate::kernels::attention::{self, Attention};
use crate::kernels::embed::{self, Embed};
use crate::kernels::expert::{self, Layout, Sizes, Values};
use crate::kernels::head::{Filter, Pick};
use crate::kernels::kv::KvLayout;
use crate::kernels::mode::Mode;
use crate::kernels::moe_down::{MoeDown, Output};
use crate::kernels::moe_group::{MoeGroup, MoeSum};
use crate::kernels::moe_gu::{self, MoeGu};
use crate::kernels::mv_q8::{self, Form, MatVec, Storage};
use crate::kernels::recurrent::{Heads, RecCore};
use crate::kernels::rope::{self, AttentionShape};
use crate::kernels::router::{self, Router};
use crate::kernels::steer::{self, Steer};
use crate::model::Shape;
use crate::ops::Steering;
use crate::quant::TensorType;
use crate::vulkan::{Device, Slice};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

/// What kernels need to know of the model, as they count it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Dims {
    pub(super) hidden: u32,
    pub(super) vocab: u32,
    pub(super) query_width: u32,
    pub(super) inner: u32,
    pub(super) heads: Heads,
    pub(super) attention: AttentionShape,
    pub(super) experts: Sizes,
}

impl Dims {
    pub(super) fn new(shape: &Shape, kv: KvLayout) -> Self {
        Self {
            hidden: int(shape.hidden),
            vocab: int(shape.vocab),
            query_width: int(shape.query_width()),
            inner: int(shape.inner),
            heads: Heads { key: int(shape.key_heads), value: int(shape.value_heads) },
            attention: AttentionShape {
                heads: int(shape.heads),
                rope_dims: int(shape.rope_dims),
                eps: shape.rms_eps,
                kv,
            },
            experts: Sizes {
                hidden: int(shape.hidden),
                experts: int(shape.experts),
                used: int(shape.experts_used),
                expert_ffn: int(shape.expert_ffn),
                shared_ffn: int(shape.shared_ffn),
            },
        }
    }
}

fn int(n: usize) -> u32 {
    u32::try_from(n).expect("dimensions were checked")
}

/// Kernels and tables that do not depend on the number of rows.
pub(super) struct Shared {
    pub(super) core: RecCore,
    pub(super) attention: Attention,
    pub(super) rope: Slice,
    /// Of the routers' last workgroups: zero between dispatches.
    pub(super) counter: Slice,
    tables: HashMap<TensorType, Slice>,
    steering: Option<Directions>,
}

/// Directions of steering `[layers][hidden]`, with the scales of the two edits.
struct Directions {
    rows: Slice,
    scales: [f32; 2],
    hidden: u32,
}

/// Makes a buffer of this name with these bytes.
pub(super) type Upload<'a> = dyn FnMut(&str, &[u8]) -> Result<Slice, Error> + 'a;

impl Shared {
    pub(super) fn new(
        device: &Arc<Device>,
        upload: &mut Upload<'_>,
        (shape, dims, mode): (&Shape, &Dims, Mode),
        (weights, ctx, steering): (&DeviceWeights, usize, Option<&Steering>),
    ) -> Result<Self, Error> {
        let table = rope::table(ctx, shape.rope_dims, shape.rope_base);
        let rope = upload("rope", bytemuck::cast_slice(&table))?;
        let mut tables = HashMap::new();
        for layer in &weights.layers {
            let ty = layer.moe.gate.ty;
            if let (Some(bytes), false) = (moe_gu::table(ty), tables.contains_key(&ty)) {
                tables.insert(ty, upload("codebook", bytes)?);
            }
        }
        let splits = attention::splits(int(shape.kv_heads), device.caps());
        let path = attention::path(&dims.attention, mode, device.caps());
        Ok(Self {
            core: RecCore::new(device, dims.heads, dims.inner)?,
            attention: Attention::new(device, dims.attention, splits, path)?,
            rope,
            counter: upload("counter", &[0; 4])?,
            tables,
            steering: steering.map(|s| directions(upload, s, shape)).transpose()?,
        })
    }

    /// The direction of a layer and the scale of an edit.
    ///
    /// # Panics
    /// Without steering.
    pub(super) fn direction(&self, layer: usize, edit: Edit) -> (Slice, f32) {
        let steering = self.steering.as_ref().expect("steered graphs have directions");
        let bytes = u64::from(steering.hidden) * 4;
        let rows = &steering.rows;
        (rows.buffer.slice(layer as u64 * bytes, bytes), steering.scales[edit as usize])
    }

    /// The codebook of a format that has one.
    pub(super) fn table(&self, ty: TensorType) -> Option<Slice> {
        self.tables.get(&ty).cloned()
    }

    pub(super) fn slices(&self) -> impl Iterator<Item = &Slice> {
        let directions = self.steering.iter().map(|s| &s.rows);
        self.tables.values().chain([&self.rope, &self.counter]).chain(directions)
    }
}

/// Rows of all layers; zero where a layer has no direction, which edits nothing.
fn directions(
    upload: &mut Upload<'_>,
    steering: &Steering,
    shape: &Shape,
) -> Result<Directions, Error> {
    let none = vec![0.0; shape.hidden];
    let rows = (0..shape.layers).flat_map(|i| steering.direction(i).unwrap_or(&none).to_vec());
    let rows: Vec<f32> = rows.collect();
    Ok(Directions {
        rows: upload("directions", bytemuck::cast_slice(&rows))?,
        scales: [steering.attention, steering.ffn],
        hidden: int(shape.hidden),
    })
}

/// The kernels of an expert block.
pub(super) struct ExpertKernels {
    pub(super) router: Router,
    pub(super) gate_up: MoeGu,
    pub(super) down: MoeDown,
    /// For several rows, which share the experts that more than one of them chose.
    pub(super) grouped: Option<(MoeGroup, MoeSum)>,
}

impl ExpertKernels {
    /// Partial sums of squares that the block leaves for each row.
    fn partials(&self) -> u32 {
        self.grouped.as_ref().map_or_else(|| self.down.partials(), |(_, sum)| sum.partials())
    }
}

/// What the choice of an expert block's kernels depends on: storage of the router, formats of gate and down.
type Formats = (bool, TensorType, TensorType);

fn formats(moe: &Moe) -> Formats {
    (matches!(moe.router.data, mv_q8::Matrix::Q8(_)), moe.gate.ty, moe.down.ty)
}

/// A product's form, storage and shape.
type Product = (Form, Storage, u32, u32);

/// Kernels for one number of rows: 1, 2, 4 or 8.
pub(super) struct Class {
    pub(super) batch: u32,
    products: HashMap<Product, MatVec>,
    experts: HashMap<Formats, ExpertKernels>,
    pub(super) embed: Embed,
    pub(super) pick: Pick,
    pub(super) filter: Filter,
    pub(super) steer: Option<Steer>,
}

impl Class {
    pub(super) fn new(
        device: &Arc<Device>,
        (batch, mode): (u32, Mode),
        dims: &Dims,
        weights: &DeviceWeights,
        steered: bool,
    ) -> Result<Self, Error> {
        let mut products = HashMap::new();
        for product in weights.layers.iter().flat_map(|layer| layer_products(layer, steered)) {
            add(&mut products, device, (batch, mode), product)?;
        }
        let output = &weights.output;
        let head = (Form::Head, output.storage(), output.rows, output.cols);
        add(&mut products, device, (batch, mode), head)?;
        let mut experts = HashMap::new();
        for layer in &weights.layers {
            let key = formats(&layer.moe);
            if let Entry::Vacant(place) = experts.entry(key) {
                place.insert(expert_kernels(device, (batch, mode), dims, key, steered)?);
            }
        }
        let table = weights.embedding.storage();
        let steer = || Steer::new(device, dims.hidden, steer::Rows::Batch);
        Ok(Self {
            batch,
            products,
            experts,
            embed: Embed::new(device, embed::Step::Rows(batch), table, dims.hidden)?,
            pick: Pick::new(device, batch)?,
            filter: Filter::new(device, batch, dims.vocab, true)?,
            steer: steered.then(steer).transpose()?,
        })
    }

    /// Partial sums of squares that the layers' last kernels leave, after a mixer and after the experts. With
    /// steering there is one.
    pub(super) fn partials(&self, weights: &DeviceWeights) -> Result<(u32, u32), Error> {
        if self.steer.is_some() {
            return Ok((1, 1));
        }
        let out = |layer: &Layer| match &layer.mixer {
            DeviceMixer::Recurrent(r) => self.product(Form::Residual, &r.out).partials(),
            DeviceMixer::Attention(a) => self.product(Form::Residual, &a.out).partials(),
        };
        let down = |layer: &Layer| self.experts(&layer.moe).partials();
        let first = &weights.layers[0];
        let partials = (out(first), down(first));
        // One buffer each serves all layers.
        let alike = weights.layers.iter().all(|layer| (out(layer), down(layer)) == partials);
        if alike { Ok(partials) } else { Err(Error::Step("layers of unlike forms".to_owned())) }
    }

    /// The kernel of a product that some layer has.
    pub(super) fn product(&self, form: Form, weights: &super::weights::Linear) -> &MatVec {
        &self.products[&(form, weights.storage(), weights.rows, weights.cols)]
    }

    pub(super) fn experts(&self, moe: &Moe) -> &ExpertKernels {
        &self.experts[&formats(moe)]
    }
}

fn layer_products(layer: &Layer, steered: bool) -> Vec<Product> {
    let out = if steered { Form::Plain } else { Form::Residual };
    let product =
        |form, linear: &super::weights::Linear| (form, linear.storage(), linear.rows, linear.cols);
    match &layer.mixer {
        DeviceMixer::Recurrent(r) => {
            let form = if r.gates.is_some() { Form::Mixer } else { Form::Recurrent };
            let gates = r.gates.iter().map(|gates| product(Form::Gates, gates));
            gates.chain([product(form, &r.input), product(out, &r.out)]).collect()
        }
        DeviceMixer::Attention(a) => vec![product(Form::Norm, &a.input), product(out, &a.out)],
    }
}

fn add(
    products: &mut HashMap<Product, MatVec>,
    device: &Arc<Device>,
    (batch, mode): (u32, Mode),
    product: Product,
) -> Result<(), Error> {
    if let Entry::Vacant(place) = products.entry(product) {
        let (form, storage, rows, k) = product;
        let shape = mv_q8::Shape { storage, rows, k, batch };
        place.insert(MatVec::new(device, form, shape, mode)?);
    }
    Ok(())
}

fn expert_kernels(
    device: &Arc<Device>,
    (batch, mode): (u32, Mode),
    dims: &Dims,
    (q8_router, gate_up, down): Formats,
    steered: bool,
) -> Result<ExpertKernels, Error> {
    let sizes = &dims.experts;
    let form = if q8_router { router::Form::Q8 } else { router::Form::F32 };
    let layout = Layout { gate_up, down, values: Values::choose(mode, device.caps()) };
    let group_rows = batch > 1 && expert::groups_rows(device.caps());
    let grouped = if group_rows {
        let group = MoeGroup::new(device, sizes, batch)?;
        Some((group, MoeSum::new(device, sizes, layout, batch, steered)?))
    } else {
        None
    };
    let output = match (group_rows, steered) {
        (true, _) => Output::Parts(batch),
        (false, false) => Output::Residual,
        (false, true) => Output::Plain,
    };
    Ok(ExpertKernels {
        router: Router::new(device, sizes, layout, form, batch)?,
        gate_up: MoeGu::new(device, sizes, layout, group_rows.then_some(batch))?,
        down: MoeDown::new(device, sizes, layout, output)?,
        grouped,
    })
}
