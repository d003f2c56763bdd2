// Saving a plot as a picture: a drawing (SVG) or a heat map (a table), with its title above and its citation below.
const SVG = "http://www.w3.org/2000/svg";
const STYLES = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "stroke-linejoin", "paint-order", "opacity", "font-size", "font-family", "font-weight", "font-style", "text-anchor"];
function svgNode(tag, attributes, text) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  return node;
}
function styledCopy(svg) {  // with what the page's style sheets say of every mark
  const copy = svg.cloneNode(true), from = [svg, ...svg.querySelectorAll("*")], to = [copy, ...copy.querySelectorAll("*")];
  from.forEach((node, at) => {
    const style = getComputedStyle(node);
    for (const name of STYLES) if (node !== svg) to[at].style.setProperty(name, style.getPropertyValue(name));
    to[at].removeAttribute("class");
  });
  return copy;
}
function tableCopy(table) {  // a table as it is drawn: its cells' colours, and its text line by line
  const frame = table.getBoundingClientRect(), group = svgNode("g", {});
  for (const cell of table.querySelectorAll("th, td")) {
    const at = cell.getBoundingClientRect(), style = getComputedStyle(cell);
    if (style.backgroundColor !== "rgba(0, 0, 0, 0)") group.append(svgNode("rect", { x: at.left - frame.left, y: at.top - frame.top, width: at.width, height: at.height, fill: style.backgroundColor }));
    const walker = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      const range = document.createRange(), lines = [];
      for (const found of node.data.matchAll(/\S+/g)) {
        range.setStart(node, found.index); range.setEnd(node, found.index + found[0].length);
        const box = range.getBoundingClientRect();
        if (!box.width) continue;
        const last = lines[lines.length - 1];
        if (last && Math.abs(last.bottom - box.bottom) < 3) last.text += " " + found[0];
        else lines.push({ left: box.left, bottom: box.bottom, height: box.height, text: found[0] });
      }
      const own = getComputedStyle(node.parentElement);
      for (const line of lines) {
        const text = svgNode("text", { x: line.left - frame.left, y: line.bottom - frame.top - line.height * 0.24, fill: own.color }, line.text);
        for (const name of ["font-size", "font-family", "font-weight", "font-style"]) text.style.setProperty(name, own.getPropertyValue(name));
        group.append(text);
      }
    }
  }
  return [group, frame.width, frame.height];
}
function wrapped(said, letters) {
  const lines = [""];
  for (const word of said.split(/\s+/)) {
    if ((lines[lines.length - 1] + " " + word).length > letters) lines.push(word);
    else lines[lines.length - 1] = (lines[lines.length - 1] + " " + word).trim();
  }
  return lines;
}
function picture(section, link) {  // the plot with its title, what it is of, the day and the address
  const drawing = section.querySelector("figure svg"), table = section.querySelector("table.heat");
  let inner, width, height;
  if (drawing) {
    [, , width, height] = drawing.getAttribute("viewBox").split(" ").map(Number);
    inner = styledCopy(drawing);
    for (const [name, value] of [["x", 16], ["y", 44], ["width", width], ["height", height]]) inner.setAttribute(name, value);
  } else {
    const box = table.parentElement, [left, top] = [box.scrollLeft, box.scrollTop];
    box.scrollTo(0, 0);
    [inner, width, height] = tableCopy(table);
    box.scrollTo(left, top);
    inner.setAttribute("transform", "translate(16 44)");
  }
  const style = getComputedStyle(document.body), ink = style.color, font = "system-ui, sans-serif", wide = Math.max(width, 560);
  const legend = section.querySelector(".signs, .sub");
  const below = [legend ? legend.innerText : "", section.dataset.about, "medprobe board, " + new Date().toISOString().slice(0, 10) + ", " + link].filter(Boolean).flatMap((line) => wrapped(line, Math.floor(wide / 6.2)));
  const whole = svgNode("svg", { xmlns: SVG, width: wide + 32, height: height + 64 + 16 * below.length, viewBox: "0 0 " + (wide + 32) + " " + (height + 64 + 16 * below.length) });
  whole.append(svgNode("rect", { width: "100%", height: "100%", fill: style.backgroundColor }));
  whole.append(svgNode("text", { x: 16, y: 28, fill: ink, "font-size": 18, "font-weight": 700, "font-family": font }, section.dataset.title));
  whole.append(inner);
  below.forEach((line, at) => whole.append(svgNode("text", { x: 16, y: height + 66 + 16 * at, fill: ink, "font-size": 11.5, "font-family": font }, line)));
  return new XMLSerializer().serializeToString(whole);
}
async function savePlot(section, form, link, name) {
  const drawn = picture(section, link), file = "medprobe-" + name + "-" + section.dataset.plot + "." + form;
  if (form === "svg") { saveFile({ name: file, text: drawn, type: "image/svg+xml" }); return; }
  const image = new Image();
  image.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(drawn);
  await image.decode();
  const canvas = document.createElement("canvas");
  canvas.width = 2 * image.naturalWidth; canvas.height = 2 * image.naturalHeight;
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  const blob = await new Promise((done) => canvas.toBlob(done, "image/png"));
  saveFile({ name: file, text: blob, type: "image/png" });
}
