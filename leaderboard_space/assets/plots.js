// Save a plot as a self-contained SVG or PNG, with its title above and its description, date and address below.
const STYLES = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linejoin", "paint-order", "opacity", "font-size", "font-family", "font-weight", "text-anchor"];
function svgNode(tag, attributes, text = "") {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.textContent = text;
  return node;
}
function styledCopy(svg) {  // with the computed style of every mark, since the file has no style sheets
  const copy = svg.cloneNode(true), to = [...copy.querySelectorAll("*")];
  [...svg.querySelectorAll("*")].forEach((node, at) => {
    for (const name of STYLES) to[at].style.setProperty(name, getComputedStyle(node).getPropertyValue(name));
  });
  return copy;
}
function wrapped(said, letters) {
  const lines = [""];
  for (const word of said.split(/\s+/)) {
    if ((lines.at(-1) + " " + word).length > letters) lines.push(word);
    else lines.push((lines.pop() + " " + word).trim());
  }
  return lines;
}
async function savePlot(section, form, link, name) {
  const svg = section.querySelector("figure.wide svg"), inner = styledCopy(svg), { title, about, plot } = section.dataset;
  const { width, height } = svg.viewBox.baseVal, { color, backgroundColor } = getComputedStyle(document.body), font = "system-ui, sans-serif";
  const told = [section.querySelector(".sub").innerText, about, "medprobe board, " + new Date().toISOString().slice(0, 10) + ", " + link];
  const below = told.flatMap((line) => wrapped(line, Math.floor(width / 6.2)));
  const size = { width: width + 32, height: height + 64 + 16 * below.length };
  const whole = svgNode("svg", { ...size, viewBox: "0 0 " + size.width + " " + size.height });
  for (const [key, value] of Object.entries({ x: 16, y: 44, width, height })) inner.setAttribute(key, value);
  whole.append(svgNode("rect", { width: "100%", height: "100%", fill: backgroundColor }), inner);
  whole.append(svgNode("text", { x: 16, y: 28, fill: color, "font-size": 18, "font-weight": 700, "font-family": font }, title));
  below.forEach((line, at) => whole.append(svgNode("text", { x: 16, y: height + 66 + 16 * at, fill: color, "font-size": 11.5, "font-family": font }, line)));
  const drawn = new XMLSerializer().serializeToString(whole), file = "medprobe-" + name + "-" + plot + "." + form;
  if (form === "svg") return saveFile({ name: file, text: drawn, type: "image/svg+xml" });
  const image = Object.assign(new Image(), { src: "data:image/svg+xml;charset=utf-8," + encodeURIComponent(drawn) });
  await image.decode();
  const canvas = Object.assign(document.createElement("canvas"), { width: 2 * size.width, height: 2 * size.height });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  saveFile({ name: file, text: await new Promise((done) => canvas.toBlob(done)), type: "image/png" });
}
