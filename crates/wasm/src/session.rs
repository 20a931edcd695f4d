//! One model between the page and the library.

#[cfg(feature = "run")]
use std::collections::BTreeMap;

use ovir::diagnostics::{CODES, Report, SourceText, Summary, render_human, render_json};
use ovir::ir::Weights;
use ovir::{Core, Model, Port, ReadOptions};
#[cfg(feature = "run")]
use ovir::{ElementType, Tensor};
use serde_json::{Value, json};

/// Bytes that go between the page and the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slot {
    /// In: the XML file.
    Xml = 0,
    /// In: the weights.
    Weights = 1,
    /// In: the name of the file, as findings show it.
    Name = 2,
    /// In: an input of the next inference, as `.npy`.
    Input = 3,
    /// Out: findings as `ovir validate --format json` prints them, cards of codes, or what an inference gave.
    Json = 4,
    /// Out: findings for people, with ANSI styles.
    Human = 5,
    /// Out: what the model is.
    Facts = 6,
    /// Out: an output of the last inference, as `.npy`.
    Output = 7,
}

/// The number of slots.
const SLOTS: usize = 8;

/// The first values of an output that a summary shows.
#[cfg(feature = "run")]
const SHOWN_VALUES: usize = 8;

/// The slots of a page, the model that was validated last, its inputs and outputs.
#[derive(Debug, Default)]
pub struct Session {
    slots: [Vec<u8>; SLOTS],
    model: Option<Model>,
    #[cfg(feature = "run")]
    inputs: BTreeMap<usize, Tensor>,
    #[cfg(feature = "run")]
    outputs: Vec<Tensor>,
}

impl Slot {
    /// The slot with this number.
    pub fn from_number(number: u32) -> Option<Slot> {
        use Slot::{Facts, Human, Input, Json, Name, Output, Weights, Xml};
        [Xml, Weights, Name, Input, Json, Human, Facts, Output].get(number as usize).copied()
    }
}

impl Session {
    /// A session without a model.
    pub const fn new() -> Session {
        Session {
            slots: [const { Vec::new() }; SLOTS],
            model: None,
            #[cfg(feature = "run")]
            inputs: BTreeMap::new(),
            #[cfg(feature = "run")]
            outputs: Vec::new(),
        }
    }

    /// Memory in a slot, filled with zeros; `None` if it cannot be had.
    pub fn allocate(&mut self, slot: Slot, length: usize) -> Option<&mut [u8]> {
        let bytes = &mut self.slots[slot as usize];
        *bytes = Vec::new();
        bytes.try_reserve_exact(length).ok()?;
        bytes.resize(length, 0);
        Some(bytes)
    }

    /// What a slot holds.
    pub fn bytes(&self, slot: Slot) -> &[u8] {
        &self.slots[slot as usize]
    }

    /// Validates the model in the slots and gives their memory back. Without weights the structure is checked, and the
    /// findings say what could not be known. `checks_values` looks into all constants for NaN, infinities and values
    /// beyond the range of f16. Findings go to [`Slot::Json`] and [`Slot::Human`], what the model is to [`Slot::Facts`].
    /// Returns the number of errors.
    pub fn validate(&mut self, has_weights: bool, checks_values: bool) -> usize {
        let (xml, weights, name) = (self.take(Slot::Xml), self.take(Slot::Weights), self.take(Slot::Name));
        let name = String::from_utf8_lossy(&name).into_owned();
        let weights = has_weights.then(|| Weights::from_bytes(weights));
        let options = ReadOptions { without_weights: !has_weights, ..ReadOptions::default() };
        self.forget();
        let validation = Core::new().validate_memory_with(&xml, weights.as_ref(), &options);
        let mut diagnostics = validation.diagnostics.clone();
        if let Some(result) = &validation.result {
            if checks_values {
                diagnostics.extend(ovir::graph::check_values(&result.model));
            }
            if !has_weights {
                diagnostics.extend(ovir::graph::unknown_without_weights(&result.model, &result.inference));
            }
        }
        let report = [Report::new(name, Some(SourceText::new(&validation.xml)), diagnostics)];
        self.put(Slot::Json, render_json(&report));
        self.put(Slot::Human, render_human(&report, true));
        let errors = Summary::total(&report).errors;
        self.model = validation.into_model(None).ok();
        let facts = self.model.as_ref().map_or(Value::Null, facts);
        self.put(Slot::Facts, facts.to_string());
        errors
    }

    /// Puts the cards of all codes into [`Slot::Json`].
    pub fn cards(&mut self) {
        let cards = CODES.iter().map(|card| {
            let entry = json!({
                "title": card.title,
                "severity": card.severity,
                "explanation": card.explanation,
                "example": card.example,
            });
            (card.name.to_owned(), entry)
        });
        self.put(Slot::Json, Value::Object(cards.collect()).to_string());
    }

    /// Takes the array in [`Slot::Input`] for the input that [`Slot::Name`] means, or for the only one. Returns whether it is
    /// one; if not, [`Slot::Json`] has the reason in `"error"`.
    #[cfg(feature = "run")]
    pub fn set_input(&mut self) -> bool {
        let (array, name) = (self.take(Slot::Input), self.take(Slot::Name));
        let result = self.read_input(&array, &String::from_utf8_lossy(&name));
        self.answer(result)
    }

    /// Runs one inference of the model that was validated last, with the inputs that were set and random ones for the
    /// others, and puts a summary of the outputs into [`Slot::Json`]. Returns whether it ran; if not, the JSON has the reason
    /// in `"error"`.
    #[cfg(feature = "run")]
    pub fn run(&mut self, seed: u64) -> bool {
        let result = self.infer(seed);
        self.answer(result)
    }

    /// Puts an output of the last inference into [`Slot::Output`]. Returns whether there is one.
    #[cfg(feature = "run")]
    pub fn output(&mut self, index: usize) -> bool {
        let mut bytes = Vec::new();
        let Some(tensor) = self.outputs.get(index) else { return false };
        let is_written = ovir::tensor::npy::write_npy(tensor, &mut bytes).is_ok();
        self.slots[Slot::Output as usize] = bytes;
        is_written
    }

    #[cfg(feature = "run")]
    fn read_input(&mut self, array: &[u8], name: &str) -> Result<Value, String> {
        let model = self.model.as_ref().ok_or("there is no valid model")?;
        let ports = model.inputs();
        let index = match model.input_index(name) {
            Ok(index) => index,
            Err(_) if ports.len() == 1 => 0,
            Err(error) => return Err(error.to_string()),
        };
        let element_type = Some(ports[index].element_type);
        let tensor = ovir::tensor::npy::read_npy(array, element_type).map_err(|error| error.to_string())?;
        self.inputs.insert(index, tensor);
        Ok(json!({ "schema": 1, "input": ports[index].name }))
    }

    #[cfg(feature = "run")]
    fn infer(&mut self, seed: u64) -> Result<Value, String> {
        let text = |error: ovir::Error| error.to_string();
        let model = self.model.as_ref().ok_or("there is no valid model")?;
        let options = ovir::CompileOptions { threads: 1, ..ovir::CompileOptions::default() };
        let compiled = Core::new().compile_model(model, &options).map_err(text)?;
        let mut request = compiled.create_infer_request();
        for (index, port) in model.inputs().into_iter().enumerate() {
            let tensor = match self.inputs.get(&index) {
                Some(tensor) => tensor.clone(),
                None => random_input(port, ovir::random::mix(seed, 0, index as u64)).map_err(text)?,
            };
            request.set_input_tensor(index, tensor).map_err(text)?;
        }
        request.infer().map_err(text)?;
        let keys = model.output_keys();
        self.outputs =
            (0..keys.len()).map(|index| request.output_tensor(index)).collect::<Result<_, _>>().map_err(text)?;
        let outputs: Vec<Value> = keys.iter().zip(&self.outputs).map(|(key, tensor)| describe(key, tensor)).collect();
        Ok(json!({ "schema": 1, "outputs": outputs }))
    }

    /// Puts an answer or the reason why there is none into [`Slot::Json`].
    #[cfg(feature = "run")]
    fn answer(&mut self, result: Result<Value, String>) -> bool {
        let is_good = result.is_ok();
        let answer = result.unwrap_or_else(|reason| json!({ "schema": 1, "error": reason }));
        self.put(Slot::Json, answer.to_string());
        is_good
    }

    /// Forgets the model and everything of it.
    fn forget(&mut self) {
        self.model = None;
        #[cfg(feature = "run")]
        {
            self.inputs.clear();
            self.outputs.clear();
        }
    }

    fn take(&mut self, slot: Slot) -> Vec<u8> {
        std::mem::take(&mut self.slots[slot as usize])
    }

    fn put(&mut self, slot: Slot, text: String) {
        self.slots[slot as usize] = text.into_bytes();
    }
}

/// Inputs, outputs and operations of a model.
fn facts(model: &Model) -> Value {
    let ports = |ports: Vec<Port>| -> Vec<Value> {
        let port = |port: &Port| json!({ "name": port.name, "element_type": port.element_type.name(), "shape": port.shape.to_string() });
        ports.iter().map(port).collect()
    };
    let operations: Vec<Value> =
        model.graph().operation_counts().into_iter().map(|(name, count)| json!([name, count])).collect();
    json!({
        "name": model.name(),
        "ir_version": model.graph().ir_version,
        "layers": model.graph().nodes.len(),
        "inputs": ports(model.inputs()),
        "outputs": ports(model.outputs()),
        "operations": operations,
    })
}

/// A random input; unknown dimensions are 1, or the smallest size that they allow.
#[cfg(feature = "run")]
fn random_input(mut port: Port, seed: u64) -> Result<Tensor, ovir::Error> {
    if let Some(dims) = port.shape.dims() {
        let sizes = dims.iter().map(|dim| {
            let size = dim.min().max(1).min(dim.max());
            ovir::Dim::interval(size, size)
        });
        port.shape = ovir::PartialShape::from_dims(sizes);
    }
    ovir::random::fill(&port, seed)
}

#[cfg(feature = "run")]
fn describe(name: &str, tensor: &Tensor) -> Value {
    // The shortest text that means the number in its own type.
    let shown = |number: &f64| match tensor.element_type() {
        ElementType::F32 | ElementType::F16 | ElementType::Bf16 => (*number as f32).to_string(),
        _ => number.to_string(),
    };
    let first: Vec<String> = match (tensor.strings(), tensor.numbers()) {
        (Some(strings), _) => strings.iter().take(SHOWN_VALUES).cloned().collect(),
        (None, Some(numbers)) => numbers.iter().take(SHOWN_VALUES).map(shown).collect(),
        (None, None) => Vec::new(),
    };
    json!({
        "name": name,
        "element_type": tensor.element_type().name(),
        "shape": tensor.shape().to_vec(),
        "elements": tensor.elements(),
        "first_values": first,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    const MODEL: &str = r#"<net name="sum" version="11">
    <layers>
        <layer id="0" name="x" type="Parameter" version="opset1">
            <data shape="?,3" element_type="f32"/>
            <output><port id="0" precision="FP32" names="x"><dim>-1</dim><dim>3</dim></port></output>
        </layer>
        <layer id="1" name="c" type="Const" version="opset1">
            <data element_type="f32" shape="3" offset="0" size="12"/>
            <output><port id="0" precision="FP32"><dim>3</dim></port></output>
        </layer>
        <layer id="2" name="sum" type="Add" version="opset1">
            <input><port id="0"><dim>-1</dim><dim>3</dim></port><port id="1"><dim>3</dim></port></input>
            <output><port id="2" precision="FP32" names="y"><dim>-1</dim><dim>3</dim></port></output>
        </layer>
        <layer id="3" name="result" type="Result" version="opset1">
            <input><port id="0"><dim>-1</dim><dim>3</dim></port></input>
        </layer>
    </layers>
    <edges>
        <edge from-layer="0" from-port="0" to-layer="2" to-port="0"/>
        <edge from-layer="1" from-port="0" to-layer="2" to-port="1"/>
        <edge from-layer="2" from-port="2" to-layer="3" to-port="0"/>
    </edges>
</net>"#;

    fn session(xml: &str, weights: Option<&[u8]>) -> Session {
        let mut session = Session::new();
        session.allocate(Slot::Xml, xml.len()).unwrap().copy_from_slice(xml.as_bytes());
        session.allocate(Slot::Name, 9).unwrap().copy_from_slice(b"model.xml");
        if let Some(weights) = weights {
            session.allocate(Slot::Weights, weights.len()).unwrap().copy_from_slice(weights);
        }
        session
    }

    fn json(session: &Session, slot: Slot) -> Value {
        serde_json::from_slice(session.bytes(slot)).unwrap()
    }

    #[test]
    fn sound_models_give_facts() {
        let mut session = session(MODEL, Some(&[0; 12]));
        assert_eq!(session.validate(true, true), 0);
        assert_eq!(json(&session, Slot::Json)["summary"], json!({ "errors": 0, "warnings": 0, "notes": 0 }));
        let facts = json(&session, Slot::Facts);
        assert_eq!(facts["inputs"], json!([{ "name": "x", "element_type": "f32", "shape": "[?,3]" }]));
        assert_eq!((&facts["layers"], &facts["outputs"][0]["name"]), (&json!(4), &json!("y")));
    }

    #[test]
    fn findings_are_those_of_the_command_line() {
        let mut session = session(&MODEL.replace("f32", "f33"), None);
        assert!(session.validate(false, false) > 0);
        let report = &json(&session, Slot::Json)["reports"][0];
        assert_eq!(report["file"], "model.xml");
        assert_eq!(report["diagnostics"][0]["location"]["start"]["line"], 4);
        assert!(String::from_utf8_lossy(session.bytes(Slot::Human)).contains("model.xml:4"));
        assert_eq!(json(&session, Slot::Facts), Value::Null);
    }

    #[test]
    fn every_code_has_a_card() {
        let mut session = Session::new();
        session.cards();
        assert_eq!(json(&session, Slot::Json).as_object().unwrap().len(), CODES.len());
    }

    #[cfg(feature = "run")]
    #[test]
    fn models_run() {
        use ovir::tensor::npy::{read_npy, write_npy};
        let weights: Vec<u8> = [1f32, 2.0, 3.0].iter().flat_map(|value| value.to_le_bytes()).collect();
        let mut session = session(MODEL, Some(&weights));
        session.validate(true, false);
        assert!(session.run(7));
        assert_eq!(json(&session, Slot::Json)["outputs"][0]["shape"], json!([1, 3]));

        let mut array = Vec::new();
        write_npy(&Tensor::from_slice(&[1f32, 1.0, -1.0], [1, 3]).unwrap(), &mut array).unwrap();
        session.allocate(Slot::Input, array.len()).unwrap().copy_from_slice(&array);
        session.allocate(Slot::Name, 1).unwrap().copy_from_slice(b"x");
        assert!(session.set_input());
        assert!(session.run(0));
        assert_eq!(json(&session, Slot::Json)["outputs"][0]["first_values"], json!(["2", "3", "2"]));
        assert!(session.output(0) && !session.output(1));
        assert_eq!(read_npy(session.bytes(Slot::Output), None).unwrap().slice::<f32>().unwrap(), [2.0, 3.0, 2.0]);
    }

    #[cfg(feature = "run")]
    #[test]
    fn what_cannot_run_says_why() {
        let mut session = session(MODEL, None);
        session.validate(false, false);
        assert!(!session.run(0));
        assert!(json(&session, Slot::Json)["error"].as_str().unwrap().contains("weights"));
        session.allocate(Slot::Input, 3).unwrap().copy_from_slice(b"abc");
        assert!(!session.set_input());
        assert!(json(&session, Slot::Json)["error"].is_string());
        assert!(!session.output(0));
        assert!(!Session::new().run(0));
    }
}
