use super::*;
use crate::document::{BackEdge, DeclaredDim, Edge, MeanImage};
use crate::read_document;
use ovir_tensor::ElementType;
use pretty_assertions::assert_eq;

fn read(xml: &str) -> Document<'_> {
    let (document, diagnostics) = read_document(xml.as_bytes());
    assert_eq!(diagnostics, vec![]);
    document.unwrap()
}

#[test]
fn prints_as_openvino_prints() {
    for xml in [
        include_str!("../../tests/fixtures/misc.xml"),
        include_str!("../../tests/fixtures/if.xml"),
        include_str!("../../tests/fixtures/tensor_iterator.xml"),
        include_str!("../../tests/fixtures/strings.xml"),
    ] {
        assert_eq!(write_document(&read(xml)), xml);
    }
}

#[test]
fn loops_read_back() {
    let xml = include_str!("../../tests/fixtures/loop.xml");
    let printed = write_document(&read(xml));
    assert_eq!(write_document(&read(&printed)), printed);
    // OpenVINO mixes inputs and outputs in the port map of Loop; otherwise the text is the same.
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&printed), sorted(xml));
}

/// A document with every field set, built by hand.
fn full() -> Document<'static> {
    let port = |id: u64| Port {
        id: id.into(),
        precision: Some(ElementType::Bf16.into()),
        dims: Some([-1, 3].into_iter().map(|value| DeclaredDim { value, ..DeclaredDim::default() }).collect()),
        names: vec![Text::of("a,b"), Text::of("c\\"), Text::of("ü\\,\"<&>'\n")],
        rt_info: vec![RtAttribute {
            element: Text::of("attribute"),
            name: Text::of("layout"),
            version: Text::of("0"),
            attributes: vec![Attribute::of("layout", "[N,C]")],
            ..RtAttribute::default()
        }],
        ..Port::default()
    };
    let entry = PortMapEntry {
        external_port_id: (-1).into(),
        internal_layer_id: 4.into(),
        axis: Some(1.into()),
        start: Some((-1).into()),
        end: Some(0.into()),
        stride: Some((-2).into()),
        part_size: Some(3.into()),
        purpose: Some(Text::of("current_iteration")),
        ..PortMapEntry::default()
    };
    let map = PortMap { inputs: vec![entry.clone(), entry.clone()], outputs: vec![entry], ..PortMap::default() };
    let inner = Body { layers: vec![Layer { id: 9.into(), ..Layer::default() }], ..Body::default() };
    let layer = Layer {
        id: 7.into(),
        name: Text::of("tab\tand\r\n\u{1}"),
        type_name: Text::of("Custom"),
        version: Text::of("extension"),
        output_names: vec![Text::of("x,y"), Text::of("z")],
        attributes: vec![Attribute::of("exclude-pad", "true"), Attribute::of("not a name", "lost")],
        inputs: vec![port(0)],
        outputs: vec![port(1), Port { id: 2.into(), ..Port::default() }],
        rt_info: port(0).rt_info,
        control_flow: Some(Box::new(ControlFlow {
            body: Some(inner.clone()),
            then_body: Some(inner.clone()),
            else_body: Some(inner),
            port_map: Some(map.clone()),
            then_port_map: Some(map),
            else_port_map: Some(PortMap::default()),
            back_edges: vec![BackEdge { from_layer: 1.into(), to_layer: 2.into(), ..BackEdge::default() }],
        })),
        ..Layer::default()
    };
    let value = |name: &'static str| RtInfo { name: Text::of(name), value: Some(Text::of("v\"")), ..RtInfo::default() };
    let group = RtInfo { name: Text::of("a b"), children: vec![value("info"), value("x")], ..RtInfo::default() };
    let edge =
        Edge { from_layer: 1.into(), from_port: 2.into(), to_layer: 3.into(), to_port: 4.into(), ..Edge::default() };
    let channel = |id: u64| MeanChannel { id: id.into(), scale: Some(0.1.into()), ..MeanChannel::default() };
    Document {
        name: Text::of("n"),
        version: 10.into(),
        body: Body { layers: vec![layer], edges: vec![edge], rt_info: vec![group, value("y")], ..Body::default() },
        pre_process: vec![PreProcess {
            reference_layer_name: Some(Text::of("data")),
            mean_precision: Some(Text::of("FP32")),
            channels: vec![
                MeanChannel { mean: Some(1.1.into()), ..channel(1) },
                MeanChannel { mean_image: Some(MeanImage { offset: 8.into(), size: 16.into() }), ..channel(0) },
            ],
            ..PreProcess::default()
        }],
        legacy_metadata: vec![RtInfo { name: Text::of("meta_data"), children: vec![value("k")], ..RtInfo::default() }],
        ..Document::default()
    }
}

#[test]
fn every_field_reads_back() {
    let printed = write_document(&full());
    let (document, diagnostics) = read_document(printed.as_bytes());
    let document = document.unwrap();
    let defects: Vec<&str> = diagnostics.iter().map(|d| d.message.as_str()).collect();
    // An output port of `full` has no precision, and its inner layers have empty texts, which are no defects of writing.
    assert_eq!(defects, ["<port> has no attribute `precision`"]);
    assert_eq!(write_document(&document), printed);
    let layer = &document.body.layers[0];
    assert_eq!(layer.name.value, "tab\tand\r\n\u{fffd}");
    let names: Vec<&str> = layer.inputs[0].names.iter().map(|n| n.as_str()).collect();
    assert_eq!(names, ["a,b", "ü\\,\"<&>'\n", "c\\"]);
    assert_eq!(layer.attributes.len(), 1);
    assert_eq!(layer.output_names[0].value, "x,y");
    assert_eq!(document.pre_process[0].channels[0].mean.unwrap().value, 1.1);
    assert_eq!(document.body.rt_info[0].name.value, "a b");
    assert_eq!(document.body.rt_info[0].child("info").unwrap().value.as_ref().unwrap().value, "v\"");
    let control_flow = layer.control_flow.as_ref().unwrap();
    assert_eq!(control_flow.port_map.as_ref().unwrap().inputs[1].part_size.unwrap().value, 3);
}

#[test]
fn a_bare_document_is_version_11() {
    assert!(write_document(&Document::default()).contains("<net name=\"\" version=\"11\">"));
}
