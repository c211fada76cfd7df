'use strict';
// Elements and numbers as text.

// el("td", {class: "text"}, "words", otherElement): strings become text nodes, never markup.
function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === 'onclick' || name === 'oninput' || name === 'onchange' || name === 'ontoggle')
      node[name] = value;
    else if (value !== null && value !== undefined && value !== false)
      node.setAttribute(name, value === true ? '' : value);
  }
  for (const child of children.flat(Infinity))
    if (child !== null && child !== undefined) node.append(child);
  return node;
}

function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on'))
      node[name] = value;
    else if (value !== null && value !== undefined)
      node.setAttribute(name, value);
  }
  for (const child of children.flat(Infinity))
    if (child !== null && child !== undefined) node.append(child);
  return node;
}

function digits(value, count = 3) {
  if (value === null || value === undefined || !isFinite(value)) return '-';
  if (value === 0) return '0';
  const size = Math.floor(Math.log10(Math.abs(value)));
  const decimals = Math.max(0, Math.min(6, count - 1 - size));
  return value.toLocaleString('en-US', {minimumFractionDigits: decimals, maximumFractionDigits: decimals});
}

// 24130 -> "24.1 ms"
function timeText(us, count = 3) {
  if (us === null || us === undefined) return '-';
  if (us >= 1e6) return digits(us / 1e6, count) + ' s';
  if (us >= 1e3) return digits(us / 1e3, count) + ' ms';
  return digits(us, count) + ' us';
}

function scaled(value, steps, unit) {
  if (value === null || value === undefined) return '-';
  const names = ['', 'K', 'M', 'G', 'T', 'P'];
  let at = 0;
  while (Math.abs(value) >= steps && at < names.length - 1) {
    value /= steps;
    ++at;
  }
  return digits(value, 3) + ' ' + names[at] + unit;
}
const bytesText = value => value ? scaled(value, 1000, 'B') : '-';
const flopsText = value => value ? scaled(value, 1000, 'FLOP') : '-';
const percent = (part, whole) =>
    whole > 0 && part !== null && part !== undefined ? digits(100 * part / whole, 2) + ' %' : '-';
const ratioText = value => value === null || !isFinite(value) ? '-' : digits(value, 3) + 'x';

// One unit for a column of times.
function timeUnit(largestUs) {
  return largestUs >= 1e4 ? {name: 'ms', divisor: 1e3} : {name: 'us', divisor: 1};
}

function phaseColor(phase) {
  return `var(--p${phase})`;
}
function css(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function swatch(phase) {
  return el('span', {class: 'swatch', style: `background:${phaseColor(phase)}`});
}
function sum(list) {
  return list.reduce((total, value) => total + (value || 0), 0);
}
function fileName(path) {
  return path.split('/').pop();
}
function baseStatus(status) {
  return status.split(':')[0];
}
function statusBadge(status) {
  return status ? el('span', {class: 'status s-' + baseStatus(status)}, status) : '-';
}
