//! As much of SPIR-V as tells what a compute shader declares. Own code, because the reflection crates
//! evaluate specialization constants and give up on operators they do not know.

use q36::vulkan::Access;
use std::collections::HashMap;

// Opcodes.
const TYPE_INT: u32 = 21;
const TYPE_FLOAT: u32 = 22;
const TYPE_VECTOR: u32 = 23;
const TYPE_STRUCT: u32 = 30;
const TYPE_POINTER: u32 = 32;
const CONSTANT: u32 = 43;
const VARIABLE: u32 = 59;
const DECORATE: u32 = 71;
const MEMBER_DECORATE: u32 = 72;
const EXECUTION_MODE_ID: u32 = 331;
// Decorations.
const SPEC_ID: u32 = 1;
const NON_WRITABLE: u32 = 24;
const NON_READABLE: u32 = 25;
const BINDING: u32 = 33;
const DESCRIPTOR_SET: u32 = 34;
const OFFSET: u32 = 35;
// Storage classes.
const INPUT: u32 = 1;
const PRIVATE: u32 = 6;
const WORKGROUP: u32 = 4;
const FUNCTION: u32 = 7;
const PUSH_CONSTANT: u32 = 9;
const STORAGE_BUFFER: u32 = 12;

const LOCAL_SIZE_ID: u32 = 38;

/// What a module declares.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Set, binding, use of each buffer, in order.
    pub(super) bindings: Vec<(u32, u32, Access)>,
    pub(super) push_bytes: u32,
    /// Ids of specialization constants, in order.
    pub(super) constants: Vec<u32>,
    /// The workgroup: specialization id of x; y and z.
    pub(super) workgroup: (u32, u32, u32),
}

/// A module's instructions by opcode, without their first word.
pub(super) struct Module<'a> {
    instructions: HashMap<u32, Vec<&'a [u32]>>,
}

impl<'a> Module<'a> {
    pub(super) fn parse(words: &'a [u32]) -> Self {
        assert_eq!(words[0], 0x0723_0203, "SPIR-V");
        let mut instructions: HashMap<u32, Vec<&[u32]>> = HashMap::new();
        let mut rest = &words[5..];
        while let Some(&first) = rest.first() {
            let (instruction, tail) = rest.split_at((first >> 16) as usize);
            instructions.entry(first & 0xffff).or_default().push(&instruction[1..]);
            rest = tail;
        }
        Self { instructions }
    }

    fn all(&self, opcode: u32) -> impl Iterator<Item = &'a [u32]> {
        self.instructions.get(&opcode).into_iter().flatten().copied()
    }

    /// The instruction with this opcode whose operand `at` is `id`.
    fn find(&self, opcode: u32, at: usize, id: u32) -> Option<&'a [u32]> {
        self.all(opcode).find(|args| args[at] == id)
    }

    /// The operands of a decoration of `id`.
    fn decoration(&self, id: u32, decoration: u32) -> Option<&'a [u32]> {
        self.all(DECORATE).find(|a| a[..2] == [id, decoration]).map(|a| &a[2..])
    }

    pub(super) fn shape(&self) -> Shape {
        let mut bindings = Vec::new();
        let mut push_bytes = 0;
        for variable in self.all(VARIABLE) {
            let [pointer, id, class, ..] = *variable else { panic!("a variable") };
            match class {
                STORAGE_BUFFER => bindings.push(self.binding(id)),
                PUSH_CONSTANT => {
                    let pointer = self.find(TYPE_POINTER, 0, pointer).expect("a pointer type");
                    push_bytes = self.struct_bytes(pointer[2]);
                }
                INPUT | PRIVATE | WORKGROUP | FUNCTION => {}
                other => panic!("a variable of storage class {other} has no place in a kernel"),
            }
        }
        bindings.sort_by_key(|b| (b.0, b.1));
        let specs = self.all(DECORATE).filter(|a| a[1] == SPEC_ID).map(|a| a[2]);
        let mut constants: Vec<u32> = specs.collect();
        constants.sort_unstable();
        // The compiler repeats the width of the workgroup where the shader reads it.
        constants.dedup();
        Shape { bindings, push_bytes, constants, workgroup: self.workgroup() }
    }

    fn binding(&self, id: u32) -> (u32, u32, Access) {
        let number = |decoration| self.decoration(id, decoration).expect("a bound buffer")[0];
        let lacks = |decoration| self.decoration(id, decoration).is_some();
        let access = match (lacks(NON_WRITABLE), lacks(NON_READABLE)) {
            (true, false) => Access::Read,
            (false, true) => Access::Write,
            (false, false) => Access::ReadWrite,
            (true, true) => panic!("a buffer for nothing"),
        };
        (number(DESCRIPTOR_SET), number(BINDING), access)
    }

    /// Where the last member ends.
    fn struct_bytes(&self, id: u32) -> u32 {
        let members = &self.find(TYPE_STRUCT, 0, id).expect("a structure")[1..];
        let end = |(i, &ty): (u32, &u32)| {
            let offset = self.all(MEMBER_DECORATE).find(|a| a[..3] == [id, i, OFFSET]);
            offset.expect("members have offsets")[3] + self.bytes(ty)
        };
        (0..).zip(members).map(end).max().expect("a member")
    }

    fn bytes(&self, ty: u32) -> u32 {
        let scalar = self.find(TYPE_INT, 0, ty).or_else(|| self.find(TYPE_FLOAT, 0, ty));
        if let Some(scalar) = scalar {
            return scalar[1] / 8;
        }
        let vector = self.find(TYPE_VECTOR, 0, ty).expect("push constants are scalars and vectors");
        vector[2] * self.bytes(vector[1])
    }

    fn workgroup(&self) -> (u32, u32, u32) {
        let mode = self.find(EXECUTION_MODE_ID, 1, LOCAL_SIZE_ID);
        let mode = mode.expect("the width of the workgroup is a specialization constant");
        let value = |id| self.find(CONSTANT, 1, id).expect("height and depth are constants")[2];
        let width =
            self.decoration(mode[2], SPEC_ID).expect("the width is a specialization constant");
        (width[0], value(mode[3]), value(mode[4]))
    }
}
