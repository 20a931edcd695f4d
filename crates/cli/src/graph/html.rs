//! A model as one page that holds everything and loads nothing.
//!
//! Names come from strangers: they stand in the page as JSON without `<`, and the page puts them on a canvas or into
//! text nodes, never into markup.

use serde_json::{Value, json};

use super::drawing::{Drawing, Finding, Graph, LINE, Layer, PADDING, Port};
use super::svg::escape;
use super::times::{LayerTime, Times};

const PAGE: &str = include_str!("page.html");

/// The text of an `.html` file.
pub fn render(drawing: &Drawing) -> String {
    // In a script element only `</script` and `<!--` mean anything, and neither can be written without `<`.
    let data = data(drawing).to_string().replace('<', "\\u003c");
    let (head, rest) = PAGE.split_once("{{title}}").unwrap_or((PAGE, ""));
    let (middle, tail) = rest.split_once("{{data}}").unwrap_or((rest, ""));
    [head, &escape(&drawing.file), middle, &data, tail].concat()
}

fn data(drawing: &Drawing) -> Value {
    json!({
        "file": drawing.file,
        "line": LINE,
        "padding": PADDING,
        "findings": drawing.findings.iter().map(finding).collect::<Vec<_>>(),
        "graphs": drawing.graphs.iter().map(graph).collect::<Vec<_>>(),
        "times": drawing.times.as_ref().map(times),
    })
}

fn times(times: &Times) -> Value {
    json!({
        "total": times.total,
        "inferences": times.inferences,
        "threads": times.threads,
        "arena": times.arena_bytes,
        "steps": times.steps.iter().map(|step| json!([step.layer, step.milliseconds, step.in_use])).collect::<Vec<_>>(),
    })
}

fn graph(graph: &Graph) -> Value {
    let layers = graph.layers.iter().zip(&graph.layout.corners).zip(&graph.sizes);
    let edges = graph.edges.iter().zip(&graph.layout.routes);
    json!({
        "name": graph.name,
        "parent": graph.parent,
        "width": graph.layout.width,
        "height": graph.layout.height,
        "layers": layers.map(|((layer_of, corner), size)| {
            let mut value = layer(layer_of);
            value["box"] = json!([corner.x.round(), corner.y.round(), size.width.round(), size.height.round()]);
            value
        }).collect::<Vec<_>>(),
        "edges": edges.map(|(edge, route)| json!([
            edge.from,
            edge.to,
            edge.value,
            route.iter().flat_map(|point| [point.x.round() as i64, point.y.round() as i64]).collect::<Vec<_>>(),
        ])).collect::<Vec<_>>(),
    })
}

fn layer(layer: &Layer) -> Value {
    json!({
        "id": layer.id,
        "name": layer.name,
        "type": layer.type_name,
        "opset": layer.opset,
        "attributes": layer.attributes,
        "inputs": layer.inputs.iter().map(port).collect::<Vec<_>>(),
        "outputs": layer.outputs.iter().map(port).collect::<Vec<_>>(),
        "lines": layer.lines,
        "findings": layer.findings.iter().map(finding).collect::<Vec<_>>(),
        "bodies": layer.bodies,
        "time": layer.time.as_ref().map(time),
    })
}

fn time(time: &LayerTime) -> Value {
    match time {
        LayerTime::Own { milliseconds, share, by, others } => {
            json!({ "ms": milliseconds, "share": share, "by": by, "others": others })
        }
        LayerTime::In(layer) => json!({ "in": layer }),
    }
}

fn port(port: &Port) -> Value {
    json!([port.name, port.value, port.layer, port.constant])
}

fn finding(finding: &Finding) -> Value {
    json!({
        "error": finding.is_error,
        "severity": finding.severity,
        "code": finding.code,
        "message": finding.message,
        "help": finding.help,
        "line": finding.line,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ovir::Core;

    const EVIL: &str = "</script><img src=x onerror=alert(1)><!--'\"";

    fn evil_drawing() -> Drawing {
        let name = escape(EVIL);
        let port = "<port id=\"0\" precision=\"FP32\"><dim>2</dim></port>";
        let xml = format!(
            "<net name=\"{name}\" version=\"11\"><layers>\
             <layer id=\"0\" name=\"{name}\" type=\"Parameter\" version=\"opset1\">\
             <data shape=\"2\" element_type=\"f32\" wrong=\"{name}\"/><output>{port}</output></layer>\
             <layer id=\"1\" name=\"r\" type=\"{name}\" version=\"{name}\"><data a=\"{name}\"/>\
             <input>{port}</input></layer></layers>\
             <edges><edge from-layer=\"0\" from-port=\"0\" to-layer=\"1\" to-port=\"0\"/></edges></net>"
        );
        let validation = Core::new().validate_memory(xml.as_bytes(), None, true);
        Drawing::new(EVIL, &validation, false, None).unwrap()
    }

    #[test]
    fn names_cannot_leave_the_data() {
        let drawing = evil_drawing();
        assert_eq!(drawing.graphs[0].layers[0].name, EVIL);
        let page = render(&drawing);
        assert!(!page.contains("<img"), "{page}");
        assert_eq!(page.matches("</script").count(), PAGE.matches("</script").count());
        assert!(!super::super::svg::render(&drawing).contains("<img"));
    }

    #[test]
    fn the_page_loads_nothing() {
        for word in ["http://", "https://", "src=", "@import", "innerHTML", "fetch("] {
            assert!(!PAGE.contains(word), "{word}");
        }
    }

    #[test]
    fn data_is_json_again() {
        let page = render(&evil_drawing());
        let (_, rest) = page.split_once("id=\"data\">").unwrap();
        let data: Value = serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap();
        assert_eq!(data["graphs"][0]["layers"][0]["name"], EVIL);
        assert!(data["graphs"][0]["layers"][0]["findings"].as_array().is_some_and(|findings| !findings.is_empty()));
    }
}
