use super::*;
use crate::document::{Attribute, Layer};
use pretty_assertions::assert_eq;

const MISC: &str = include_str!("../../tests/fixtures/misc.xml");
const IF: &str = include_str!("../../tests/fixtures/if.xml");
const LOOP: &str = include_str!("../../tests/fixtures/loop.xml");
const TENSOR_ITERATOR: &str = include_str!("../../tests/fixtures/tensor_iterator.xml");

fn read(xml: &str) -> (Option<Document<'_>>, Vec<Diagnostic>) {
    read_document(xml.as_bytes())
}

fn sound(xml: &str) -> Document<'_> {
    let (document, diagnostics) = read(xml);
    assert_eq!(diagnostics, vec![]);
    document.unwrap()
}

/// The findings as `code line-of-text message`.
fn findings(xml: &str) -> Vec<String> {
    read(xml)
        .1
        .iter()
        .map(|d| {
            let place = d.primary.as_ref().and_then(|label| xml.get(label.span.range())).unwrap_or("-");
            format!("{} {} @ {place}", d.code, d.message)
        })
        .collect()
}

/// A model with one layer whose tag and content are given.
fn with_layer(layer: &str) -> String {
    format!("<net name=\"m\" version=\"11\"><layers>{layer}</layers><edges></edges></net>")
}

fn at(xml: &str, span: Span) -> &str {
    xml.get(span.range()).unwrap()
}

#[test]
fn reads_what_openvino_wrote() {
    let document = sound(MISC);
    assert_eq!(document.name.value, "str \"<&>");
    assert_eq!(document.version.value, 11);
    assert_eq!(document.body.layers.len(), 11);
    assert_eq!(document.body.edges.len(), 6);
    let parameter = &document.body.layers[0];
    assert_eq!(parameter.name.value, "p \n\t\"<&>é");
    assert_eq!(parameter.type_name.value, "Parameter");
    assert_eq!(parameter.version.value, "opset1");
    assert_eq!(parameter.attribute("shape").unwrap().value.value, "?,3");
    assert_eq!(at(MISC, parameter.attribute("shape").unwrap().span()), "shape=\"?,3\"");
    assert_eq!(at(MISC, parameter.data_span.unwrap()), "<data shape=\"?,3\" element_type=\"f32\" />");
    let port = &parameter.outputs[0];
    assert_eq!(port.names.iter().map(|n| n.as_str()).collect::<Vec<_>>(), ["a\"b<&>", "p,1"]);
    assert_eq!(port.dims.as_ref().unwrap().iter().map(|d| d.value).collect::<Vec<_>>(), [-1, 3]);
    assert_eq!(at(MISC, port.dims.as_ref().unwrap()[1].span), "3");
    assert_eq!(port.rt_info[0].name.value, "layout");
    assert_eq!(port.rt_info[0].version.value, "0");
    assert_eq!(port.rt_info[0].attribute("layout").unwrap().value.value, "[N,C]");
    assert_eq!(document.body.layers[1].outputs[0].dims, None);
    let result = &document.body.layers[6];
    assert_eq!(result.output_names[0].value, "Result_8");
    assert_eq!(at(MISC, result.id.span), "6");
    assert_eq!(document.body.rt_info[0].name.value, "a");
    assert_eq!(document.body.rt_info[0].value.as_ref().unwrap().value, "v");
    let model_info = &document.body.rt_info[1];
    assert_eq!(model_info.child("mean_values").unwrap().value.as_ref().unwrap().value, "1 2 3");
    let edge = document.body.edges[5];
    assert_eq!((edge.from_layer.value, edge.from_port.value, edge.to_layer.value, edge.to_port.value), (5, 1, 6, 0));
    assert_eq!(at(MISC, edge.from_port.span), "1");
}

#[test]
fn reads_bodies_and_port_maps() {
    let document = sound(IF);
    let control_flow = document.body.layers[2].control_flow.as_ref().unwrap();
    assert_eq!(control_flow.then_body.as_ref().unwrap().layers.len(), 3);
    assert_eq!(control_flow.else_body.as_ref().unwrap().edges.len(), 3);
    let map = control_flow.else_port_map.as_ref().unwrap();
    assert_eq!(map.inputs[0].external_port_id.value, 1);
    assert_eq!(map.outputs[0].internal_layer_id.value, 3);

    let document = sound(LOOP);
    let control_flow = document.body.layers[3].control_flow.as_ref().unwrap();
    let map = control_flow.port_map.as_ref().unwrap();
    assert_eq!(map.inputs[1].external_port_id.value, -1);
    assert_eq!(map.inputs[1].purpose.as_ref().unwrap().value, "current_iteration");
    assert_eq!(map.outputs[1].purpose.as_ref().unwrap().value, "execution_condition");
    assert_eq!(control_flow.back_edges[0].from_layer.value, 5);
    assert_eq!(at(LOOP, control_flow.back_edges[0].span), "<edge from-layer=\"5\" to-layer=\"1\" />");

    let document = sound(TENSOR_ITERATOR);
    let control_flow = document.body.layers[2].control_flow.as_ref().unwrap();
    let slice = &control_flow.port_map.as_ref().unwrap().inputs[0];
    let numbers = [slice.axis, slice.start, slice.end, slice.stride, slice.part_size].map(|n| n.unwrap().value);
    assert_eq!(numbers, [1, 0, -1, 1, 1]);
    assert!(!control_flow.body.as_ref().unwrap().is_incomplete);
}

#[test]
fn reads_the_sections_of_version_10() {
    let xml = r#"<?xml version="1.0"?>
<net name="old" version="10">
  <layers><layer id="007" name="x" type="Parameter" version="opset1"/></layers>
  <edges/>
  <pre-process mean-precision="FP32" reference-layer-name="x">
    <channel id="1"><mean value="104.5"/><scale value="2"/></channel>
    <channel><mean offset="8" size="16"/></channel>
  </pre-process>
  <meta_data><MO_version value="2021.4"/><cli_parameters><k value="v"/><unset unset_cli_parameters="a, b"/></cli_parameters></meta_data>
  <quantization_parameters><config>{ "a": "&lt;" }</config></quantization_parameters>
  <statistics><layer><name>x</name></layer></statistics>
</net>"#;
    let document = sound(xml);
    assert_eq!(document.version.value, 10);
    assert_eq!(document.body.layers[0].id.value, 7);
    assert_eq!(document.body.layers[0].id_text, "007");
    let section = &document.pre_process[0];
    assert_eq!(section.reference_layer_name.as_ref().unwrap().value, "x");
    assert_eq!(section.channels[0].id.value, 1);
    assert_eq!(section.channels[0].mean.unwrap().value, 104.5);
    assert_eq!(section.channels[0].scale.unwrap().value, 2.0);
    assert_eq!(section.channels[1].id.value, 1);
    assert_eq!(section.channels[1].mean_image.unwrap().size.value, 16);
    let metadata = &document.legacy_metadata[0];
    assert_eq!(metadata.name.value, "meta_data");
    assert_eq!(metadata.child("MO_version").unwrap().value.as_ref().unwrap().value, "2021.4");
    let parameters = metadata.child("cli_parameters").unwrap();
    assert_eq!(parameters.child("unset").unwrap().value.as_ref().unwrap().value, "a, b");
    let config = document.legacy_metadata[1].child("config").unwrap();
    assert_eq!(config.value.as_ref().unwrap().value, "{ \"a\": \"<\" }");
}

#[test]
fn names_split_as_in_openvino() {
    let names = |text: &str| -> Vec<String> {
        let xml = with_layer(&format!(
            "<layer id=\"0\" name=\"a\" type=\"A\" version=\"b\"><output><port id=\"0\" precision=\"FP32\" names=\"{text}\"/></output></layer>"
        ));
        let document = sound(&xml);
        document.body.layers[0].outputs[0].names.iter().map(|n| n.value.to_string()).collect()
    };
    assert_eq!(names(" a , b "), [" a ", " b "]);
    assert_eq!(names(r"a\,b,c\\,d\e"), ["a,b", r"c\,d\e"]);
    assert_eq!(names("a,,b"), ["a", "b"]);
    assert_eq!(names(""), [""; 0]);
    assert_eq!(names(r"a\"), [r"a\"]);
    assert_eq!(names(","), [""; 0]);
    assert_eq!(names(r"\,x"), [",x"]);
    assert_eq!(names("a\nb\tc"), ["a b c"]);
    assert_eq!(names("é&#10;,ü"), ["é\n", "ü"]);
}

#[test]
fn spans_of_names_are_exact() {
    let xml = with_layer(
        "<layer id=\"0\" name=\"a\" type=\"A\" version=\"b\"><input><port id=\"0\" names=\"one,two\"/></input></layer>",
    );
    let document = sound(&xml);
    let names = &document.body.layers[0].inputs[0].names;
    assert_eq!((at(&xml, names[0].span), at(&xml, names[1].span)), ("one", "two"));
}

#[test]
fn damaged_xml_is_refused() {
    let table = [
        ("", "OV102 the file is empty @ "),
        ("<!-- -->", "OV102 the file holds no XML element @ "),
        (" {\"a\": 1}", "OV102 the file seems to be JSON, not the XML of an IR file @ {\"a\": 1}"),
        ("PK\u{3}\u{4}", "OV102 the file is a ZIP archive @ PK"),
        (
            "version https://git-lfs.github.com/spec/v1\noid",
            "OV102 the file is a Git LFS pointer, not the model @ version https://git-lfs.github.com/spec/v1",
        ),
        ("<!DOCTYPE html>\n<p>", "OV102 the file is a web page, not an IR file @ <!DOCTYPE html>"),
        ("hello", "OV102 the file does not start with an XML element @ hello"),
        ("<model></model>", "OV102 the root element is <model>, not <net> @ <model>"),
        ("<net version=\"11\"><layers>", "OV101 the file ends inside <layers> @ "),
        ("<net version=\"7\"/>", "OV103 IR version 7 is too old; versions 10 and 11 are read @ 7"),
        ("<net version=\"12\"/>", "OV103 IR version 12 is newer than this program; versions 10 and 11 are read @ 12"),
        ("<net version=\"x\"/>", "OV107 `x` is not an IR version @ x"),
        ("<net version=\"11\"><layers/></net><net/>", "OV101 a second root element follows the end of <net> @ <net/>"),
        ("<net version=\"11\"><layers/></net>junk", "OV101 text follows the end of <net> @ junk"),
        (
            "<net version=\"11\"><layers></net>",
            "OV101 ill-formed document: expected `</layers>`, but `</net>` was found @ <",
        ),
        (
            "<net version=\"11\"><layers/><edges",
            "OV101 syntax error: tag not closed: `>` not found before end of input @ <",
        ),
        ("<net version=\"11\"><layers/>&foo;</net>", "OV101 the entity `&foo;` is not defined @ &foo;"),
        ("<net version=\"11\"><layers/><1a/></net>", "OV101 `1a` is not an element name @ <1a/>"),
        (
            "<net version=\"11\"><!-- </net>",
            "OV101 syntax error: comment not closed: `-->` not found before end of input @ <",
        ),
    ];
    for (xml, expected) in table {
        let (document, _) = read(xml);
        // What follows the end of the document does not spoil it.
        assert_eq!(document.is_some(), expected.contains("follows the end"), "{xml}");
        assert_eq!(findings(xml), [expected], "{xml}");
    }
    let (document, diagnostics) = read_document(b"<net name=\"\xff\"/>");
    assert!(document.is_none());
    assert_eq!(diagnostics[0].code, Code::XmlSyntax);
    let (_, diagnostics) = read_document(b"\xff\xfe<\0n\0");
    assert_eq!(diagnostics[0].message, "the file is UTF-16; only UTF-8 is read");
}

#[test]
fn structure_defects_are_all_reported() {
    let table: &[(&str, &[&str])] = &[
        (
            "<layer name=\"a\" type=\"A\" version=\"b\"/>",
            &["OV106 <layer> has no attribute `id` @ <layer name=\"a\" type=\"A\" version=\"b\"/>"],
        ),
        (
            "<layer id=\"0x1\" name=\"a\" type=\"A\" version=\"b\"/>",
            &["OV107 `id` is `0x1`, which is not a non-negative integer @ 0x1"],
        ),
        (
            "<layer id=\"-1\" name=\"a\" type=\"A\" version=\"b\"/>",
            &["OV107 `id` is `-1`, which is not a non-negative integer @ -1"],
        ),
        (
            "<layer id=\"99999999999999999999\" name=\"a\" type=\"A\" version=\"b\"/>",
            &["OV107 `id` is `99999999999999999999`, which is not a non-negative integer @ 99999999999999999999"],
        ),
        (
            "<layer id=\"1\"/>",
            &[
                "OV106 <layer> has no attribute `name` @ <layer id=\"1\"/>",
                "OV106 <layer> has no attribute `type` @ <layer id=\"1\"/>",
                "OV106 <layer> has no attribute `version` @ <layer id=\"1\"/>",
            ],
        ),
        (
            "<layer id=\"1\" name=\"a\" type=\"A\" version=\"b\" colour=\"red\"/>",
            &["OV109 <layer> has no attribute `colour` @ colour=\"red\""],
        ),
        ("<layer id=\"1\" name=\"a\" type=\"A\" version=\"b\" id=\"2\"/>", &["OV101 an attribute is given twice @ i"]),
        (
            "<layer id=\"1\" name=\"a\" type=\"A\" version=\"b<\"/>",
            &["OV101 `<` stands in an attribute; it must be written as `&lt;` @ b<"],
        ),
        (
            "<layer id=\"1\"name=\"a\" type=\"A\" version=\"b\"/>",
            &["OV101 white space is missing before an attribute @ name"],
        ),
        (
            "<layer id=\"1\" name=\"&foo;\" type=\"A\" version=\"b\"/>",
            &["OV101 the entity `&foo;` is not defined @ &foo;"],
        ),
        ("<layr/>", &["OV104 <layr> has no meaning in <layers> @ <layr/>"]),
        (
            "<layer id=\"1\" name=\"a\" type=\"A\" version=\"b\"><outputs><x>1</x></outputs></layer>",
            &["OV104 <outputs> has no meaning in <layer> @ <outputs>"],
        ),
        (
            "<layer id=\"1\" name=\"a\" type=\"A\" version=\"b\"><data a=\"1\"/><data a=\"2\"/></layer>",
            &["OV110 a second <data>; only the first counts @ <data a=\"2\"/>"],
        ),
        (
            "<layer id=\"1\" name=\"a\" type=\"A\" version=\"b\">text</layer>",
            &["OV104 text in <layer> is ignored: `text` @ text"],
        ),
        (
            "<layer id=\"1\" name=\"a\" type=\"A\" version=\"b\"><output><port id=\"0\"/><port precision=\"FP32\"/><port id=\"2\" precision=\"fp32\"/><port id=\"3\" precision=\"Q78\"/></output></layer>",
            &[
                "OV106 <port> has no attribute `precision` @ <port id=\"0\"/>",
                "OV106 <port> has no attribute `id` @ <port precision=\"FP32\"/>",
                "OV108 `fp32` is not a precision @ fp32",
                "OV108 `Q78` is not a precision @ Q78",
            ],
        ),
        (
            "<layer id=\"1\" name=\"a\" type=\"A\" version=\"b\"><input><port id=\"0\"><dim>-7</dim><dim>?</dim><dim></dim><dim/><dim>4x</dim><dim>+4</dim><dim>99999999999999999999</dim></port></input></layer>",
            &[
                "OV107 `-7` is not a dimension @ -7",
                "OV107 `?` is not a dimension @ ?",
                "OV107 `` is not a dimension @ <dim>",
                "OV107 `` is not a dimension @ <dim/>",
                "OV107 `4x` is not a dimension @ 4x",
                "OV107 `+4` is not a dimension @ +4",
                "OV107 `99999999999999999999` is not a dimension @ 99999999999999999999",
            ],
        ),
        (
            "<layer id=\"1\" name=\"a\" type=\"A\" version=\"b\"><body></body><port_map><input external_port_id=\"x\" internal_layer_id=\"1\"/><x/></port_map><back_edges><edge from-layer=\"1\"/></back_edges></layer>",
            &[
                "OV105 <body> has no <layers> @ <body>",
                "OV107 `external_port_id` is `x`, which is not an integer @ x",
                "OV104 <x> has no meaning in <port_map> @ <x/>",
                "OV106 <edge> has no attribute `to-layer` @ <edge from-layer=\"1\"/>",
            ],
        ),
    ];
    for (layer, expected) in table {
        let xml = with_layer(layer);
        assert_eq!(findings(&xml), *expected, "{layer}");
        assert!(read(&xml).0.is_some(), "{layer}");
    }
    assert_eq!(
        findings("<net name=\"m\"><edges/></net>"),
        ["OV106 <net> has no attribute `version` @ <net name=\"m\">", "OV105 <net> has no <layers> @ <net name=\"m\">",]
    );
}

#[test]
fn findings_name_the_layer() {
    let xml =
        with_layer("<layer id=\"4\" name=\"a\" type=\"A\" version=\"b\"><data axis=\"1\" axis=\"2\"/></layer><layer/>");
    let (_, diagnostics) = read(&xml);
    assert_eq!(diagnostics[0].layer.as_ref().unwrap().to_string(), "layer \"a\" (id 4, A b)");
    assert_eq!(diagnostics[1].layer.as_ref().unwrap().id, "");
}

#[test]
fn what_is_left_out_marks_the_body_incomplete() {
    let xml = "<net version=\"11\"><layers/><edges><edge from-layer=\"0\"/></edges></net>";
    assert!(read(xml).0.unwrap().body.is_incomplete);
    let xml = with_layer(
        "<layer id=\"1\" name=\"a\" type=\"A\" version=\"b\"><input><port/></input><body><layers/></body></layer>",
    );
    let document = read(&xml).0.unwrap();
    assert!(document.body.is_incomplete);
    let inner = document.body.layers[0].control_flow.as_ref().unwrap().body.as_ref().unwrap();
    assert!(!inner.is_incomplete);
}

#[test]
fn every_spelling_of_precisions_that_openvino_reads_is_read() {
    let accepted = "f32 FP32 BOOL boolean BIN U1 u1 I4 i4 U4 u2 U2 u3 U3 u6 U6 NF4 nf4 F8E4M3 f8e4m3 f8e5m2 F8E5M2 F8E8M0 \
                    F4E2M1 f4e2m1 STRING string dynamic undefined UNSPECIFIED BF16 bf16 FP16 f16 FP64 f64 I8 i8 I16 I32 \
                    I64 U8 U16 U32 U64 u64";
    let refused = "fp32 float32 F32 bool Boolean DYNAMIC UNDEFINED unspecified Dynamic F16 F64 Q78 MIXED CUSTOM";
    let count = |precision: &str| {
        let xml = with_layer(&format!(
            "<layer id=\"0\" name=\"a\" type=\"A\" version=\"b\"><output><port id=\"0\" precision=\"{precision}\"/></output></layer>"
        ));
        read(&xml).1.len()
    };
    for precision in accepted.split_whitespace() {
        assert_eq!(count(precision), 0, "{precision}");
    }
    for precision in refused.split_whitespace() {
        assert_eq!(count(precision), 1, "{precision}");
    }
}

#[test]
fn limits_end_the_reading() {
    let deep_elements = with_layer(&format!("{}{}", "<x>".repeat(5000), "</x>".repeat(5000)));
    let layer = "<layer id=\"0\" name=\"a\" type=\"A\" version=\"b\">";
    let deep_bodies = with_layer(&format!("{layer}<body><layers>").repeat(1000));
    let deep_rt_info = format!("<net version=\"11\"><layers/><rt_info>{}", "<x>".repeat(1000));
    let port = format!("{layer}<input><port id=\"0\">{}</port></input></layer>", "<dim>1</dim>".repeat(40));
    let ports = format!("{layer}<input>{}</input></layer>", "<port id=\"0\"/>".repeat(70_000));
    for xml in [deep_elements, deep_bodies, deep_rt_info, with_layer(&port), with_layer(&ports)] {
        let (document, diagnostics) = read(&xml);
        assert!(document.is_none());
        assert_eq!(diagnostics.last().unwrap().code, Code::LimitExceeded);
    }
    let (_, diagnostics) = read(&with_layer(&"<x/>".repeat(20_000)));
    assert_eq!(diagnostics.len(), Limits::default().findings + 1);
    assert_eq!(diagnostics.last().unwrap().code, Code::LimitExceeded);
}

/// Every limit ends the reading of a sound file that exceeds it, and says by which name it is raised. What values hold is
/// for validation.
#[test]
fn limits_have_names() {
    let layer = |content: &str| format!("<layer id=\"0\" name=\"a\" type=\"A\" version=\"b\">{content}</layer>");
    let ports = "<input><port id=\"0\"><dim>1</dim><dim>1</dim></port><port id=\"1\"/></input>";
    let body = "<body><layers/><edges/></body>";
    let cases = [
        ("layers", with_layer(&format!("{}{}", layer(""), layer("").replace("\"0\"", "\"1\"")))),
        ("ports", with_layer(&layer(ports))),
        ("rank", with_layer(&layer(ports))),
        ("attributes", with_layer(&layer(""))),
        ("attribute-bytes", with_layer(&layer("").replace("name=\"a\"", "name=\"aa\""))),
        ("body-depth", with_layer(&layer(&body.replace("<layers/>", &format!("<layers>{}</layers>", layer(body)))))),
        (
            "rt-info-depth",
            "<net version=\"11\"><layers/><rt_info><x><x><x a=\"1\"/></x></x></rt_info></net>".to_owned(),
        ),
        ("element-depth", with_layer("<x><x><x></x></x></x>")),
        ("findings", with_layer("<x/><x/>")),
    ];
    for (name, xml) in cases {
        let mut limits = Limits::default();
        limits.set(name, 1).unwrap();
        let (_, diagnostics) = read_document_within(xml.as_bytes(), &limits);
        let last = diagnostics.last().unwrap_or_else(|| panic!("{name}"));
        assert_eq!(last.code, Code::LimitExceeded, "{name}: {}", last.message);
        assert!(last.message.contains(name), "{name}: {}", last.message);
        let (_, diagnostics) = read_document_within(xml.as_bytes(), &Limits::default());
        assert!(diagnostics.iter().all(|d| d.code != Code::LimitExceeded), "{name}");
    }
}

#[test]
fn entities_are_not_expanded() {
    let xml = "<!DOCTYPE net [<!ENTITY a \"aaaaaaaaaa\"><!ENTITY b \"&a;&a;&a;&a;&a;&a;&a;&a;\">]>\
               <net name=\"&b;\" version=\"11\"><layers/></net>";
    let (document, diagnostics) = read(xml);
    assert_eq!(document.unwrap().name.value, "");
    assert_eq!(diagnostics.len(), 1);
    assert_eq!(diagnostics[0].code, Code::XmlSyntax);
}

#[test]
fn oddities_of_xml_are_understood() {
    let xml = "\u{feff}<?xml version='1.0' encoding='utf-8'?><!-- c --><net version='11' name='a&apos;&#x41;'>\n\
               <layers><layer id=' 1 ' name='>' type='A' version='b'><input><port id='0'><dim><![CDATA[ 48 ]]></dim>\
               <dim>4<!-- c -->8</dim><dim>&#52;8</dim></port></input></layer ></layers ><?pi x?></net><!-- end -->\n";
    let document = sound(xml);
    assert_eq!(document.name.value, "a'A");
    let layer: &Layer<'_> = &document.body.layers[0];
    assert_eq!((layer.id.value, layer.id_text.as_ref()), (1, " 1 "));
    let dims = layer.inputs[0].dims.as_ref().unwrap();
    assert_eq!(dims.iter().map(|d| d.value).collect::<Vec<_>>(), [48, 48, 48]);
    assert_eq!(at(xml, dims[0].span), " 48 ");
    assert_eq!(at(xml, layer.span), "<layer id=' 1 ' name='>' type='A' version='b'>");
    assert_eq!(findings("<?xml version='1.0' encoding='latin1'?><net version='11' name='é'><layers/></net>").len(), 1);
    assert_eq!(findings("<?xml version='1.0' encoding='latin1'?><net version='11' name='e'><layers/></net>").len(), 0);
    assert_eq!(findings(" <?xml version='1.0'?><net version='11'><layers/></net>").len(), 1);
    assert_eq!(
        findings("<net version='11' name='\u{1}'><layers/></net>"),
        ["OV101 a control character is not allowed in XML @ \u{1}"]
    );
}

#[test]
fn attributes_keep_their_order() {
    let xml = with_layer(
        "<layer id=\"1\" name=\"a\" type=\"A\" version=\"b\"><data b=\"1\" exclude-pad=\"2\" a.b=\"3\" c=\"\" d=\"4\" e=\"5\" f=\"6\" g=\"7\"/></layer>",
    );
    let document = sound(&xml);
    let names: Vec<&str> = document.body.layers[0].attributes.iter().map(|a: &Attribute<'_>| a.name.as_str()).collect();
    assert_eq!(names, ["b", "exclude-pad", "a.b", "c", "d", "e", "f", "g"]);
}

/// A small generator of numbers that are the same on every run.
fn random(state: &mut u64) -> usize {
    *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    (*state >> 33) as usize
}

#[test]
fn random_damage_never_panics() {
    let alphabet = b"<>/=\"'&; \n\0?!-[]x0\xff";
    let mut state = 7;
    for original in [MISC, IF, LOOP, TENSOR_ITERATOR] {
        for round in 0..1500 {
            let mut bytes = original.as_bytes().to_vec();
            if round % 4 == 0 {
                bytes.truncate(random(&mut state) % bytes.len());
            }
            for _ in 0..=random(&mut state) % 4 {
                if bytes.is_empty() {
                    break;
                }
                let position = random(&mut state) % bytes.len();
                let byte = alphabet[random(&mut state) % alphabet.len()];
                match random(&mut state) % 3 {
                    0 => bytes[position] = byte,
                    1 => bytes.insert(position, byte),
                    _ => drop(bytes.remove(position)),
                }
            }
            let (document, diagnostics) = read_document(&bytes);
            assert!(document.is_some() || diagnostics.iter().any(Diagnostic::is_error));
            for label in diagnostics.iter().filter_map(|d| d.primary.as_ref()) {
                assert!(label.span.start <= label.span.end && label.span.start as usize <= bytes.len());
            }
        }
    }
}
