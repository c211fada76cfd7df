// Charts: stacked bar, heat map on a canvas, scatter on logarithmic axes, timeline of a step.

// parts: [{label, value, color, text}]
function stackedBar(parts, label) {
  const total = sum(parts.map(part => part.value));
  return el(
      'div', {
        class: 'stack',
        role: 'img',
        'aria-label': label + ': ' + parts.map(part => `${part.label} ${part.text}`).join(', ')
      },
      parts.filter(part => part.value > 0).map(part => el('i', {
                                                 style: `width:${100 * part.value / total}%;background:${part.color}`,
                                                 title: `${part.label}: ${part.text}`
                                               })));
}

function legend(parts, most = 6) {
  return el(
      'ul', {class: 'legend'},
      parts.slice(0, most).map(
          part =>
              el('li', {}, el('span', {class: 'swatch', style: `background:${part.color}`}), part.label, ' ',
                 el('b', {}, part.text))));
}

// Rows and columns of coloured cells. Mouse or arrow keys read a cell out below.
// spec: {label, rows: [text], columns: [text], value(r, c) -> number or null, color(value) -> css color, read(r, c) ->
// text, cell: [w, h]}
function heatMap(spec) {
  const canvas =
      el('canvas', {tabindex: '0', role: 'img', 'aria-label': spec.label + '. Arrow keys move between cells.'});
  const readout =
      el('div', {class: 'readout', 'aria-live': 'polite'}, 'Point at a cell, or focus the map and use the arrow keys.');
  const box = el('div', {class: 'heat'}, el('div', {class: 'wide'}, canvas), readout);
  let cursor = null, left = 0, cellW = 0, cellH = 0;
  const top = 18;

  function draw() {
    const width = Math.max(300, box.clientWidth || 900);
    const context = canvas.getContext('2d');
    context.font = '11px system-ui, sans-serif';
    left = Math.min(210, 8 + Math.max(...spec.rows.map(row => context.measureText(row).width)));
    cellW = Math.max(spec.minWidth || 2, Math.min(spec.maxWidth || 34, (width - left - 4) / spec.columns.length));
    cellH = spec.rows.length > 40 ? 9 : 15;
    const w = Math.ceil(left + cellW * spec.columns.length + 2), h = top + cellH * spec.rows.length + 2;
    const dense = window.devicePixelRatio || 1;
    canvas.width = w * dense;
    canvas.height = h * dense;
    canvas.style.width = w + 'px';
    canvas.style.height = h + 'px';
    context.setTransform(dense, 0, 0, dense, 0, 0);
    context.font = '11px system-ui, sans-serif';
    context.textBaseline = 'middle';
    const ink = css('--soft');
    const gap = cellW > 5 ? 1 : 0;
    spec.rows.forEach((row, r) => {
      const every = Math.ceil(11 / cellH);
      if (r % every === 0) {
        context.fillStyle = ink;
        context.textAlign = 'right';
        context.fillText(row, left - 6, top + (r + .5) * cellH, left - 8);
      }
      spec.columns.forEach((column, c) => {
        const value = spec.value(r, c);
        if (value === null || value === undefined) return;
        context.fillStyle = spec.color(value);
        context.fillRect(left + c * cellW, top + r * cellH, Math.max(1, cellW - gap), cellH - (cellH > 10 ? 1 : 0));
      });
    });
    context.fillStyle = ink;
    context.textAlign = 'left';
    let free = left;
    spec.columns.forEach((column, c) => {
      const x = left + c * cellW;
      if (x >= free && x + context.measureText(column).width <= w + 6) {
        context.fillText(column, x, 9);
        free = x + context.measureText(column).width + 8;
      }
    });
    if (cursor) {
      context.strokeStyle = css('--ink');
      context.lineWidth = 2;
      context.strokeRect(left + cursor[1] * cellW - 1, top + cursor[0] * cellH - 1, cellW + 1, cellH + 1);
    }
  }
  function read(r, c) {
    if (r < 0 || c < 0 || r >= spec.rows.length || c >= spec.columns.length) return;
    cursor = [r, c];
    readout.textContent = spec.read(r, c);
    draw();
  }
  canvas.onmousemove = event => {
    const place = canvas.getBoundingClientRect();
    read(
        Math.floor((event.clientY - place.top - top) / cellH), Math.floor((event.clientX - place.left - left) / cellW));
  };
  canvas.onkeydown = event => {
    const step = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]}[event.key];
    if (!step) return;
    event.preventDefault();
    const [r, c] = cursor || [0, 0];
    read(cursor ? r + step[0] : 0, cursor ? c + step[1] : 0);
  };
  redraws.push(draw);
  requestAnimationFrame(draw);
  return box;
}

// From the background to a strong colour.
function shade(share, strong = '--seq1') {
  const mix = Math.max(0, Math.min(1, share));
  const from = css('--heat0').split(',').map(Number), to = css(strong).split(',').map(Number);
  return `rgb(${from.map((value, i) => Math.round(value + (to[i] - value) * mix)).join(',')})`;
}

function scaleLegend(low, high, strong = '--seq1') {
  const bar = el('span', {
    style:
        `display:inline-block;width:120px;height:10px;border-radius:2px;background:linear-gradient(90deg,rgb(var(--heat0)),rgb(var(${
            strong})))`
  });
  return el('span', {class: 'count'}, low + ' ', bar, ' ' + high);
}

function logTicks(low, high) {
  const ticks = [];
  for (let power = Math.ceil(Math.log10(low) - 1e-9); power <= Math.log10(high) + 1e-9; ++power)
    ticks.push(10 ** power);
  if (ticks.length < 3) {
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); ++power)
      for (const part of [2, 5]) {
        const tick = part * 10 ** power;
        if (tick >= low && tick <= high) ticks.push(tick);
      }
  }
  return ticks.sort((a, b) => a - b);
}

// points: [{x, y, r, color, label, text}], lines: [{points: [[x, y]], label}]; both axes logarithmic.
function logScatter({points, lines = [], xTitle, yTitle, label, height = 360}) {
  const box = el('div');
  function draw() {
    const width = Math.max(320, box.clientWidth || 900);
    const margin = {left: 58, right: 16, top: 14, bottom: 40};
    const all = [...points, ...lines.flatMap(line => line.points.map(([x, y]) => ({x, y})))];
    const range = key => {
      const values = all.map(point => point[key]).filter(value => value > 0);
      return [Math.min(...values) / 1.4, Math.max(...values) * 1.5];
    };
    const [x0, x1] = range('x'), [y0, y1] = range('y');
    const X = x => margin.left + (width - margin.left - margin.right) * Math.log(x / x0) / Math.log(x1 / x0);
    const Y = y =>
        height - margin.bottom - (height - margin.top - margin.bottom) * Math.log(y / y0) / Math.log(y1 / y0);
    const chart = svg('svg', {width, height, viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': label});
    for (const tick of logTicks(x0, x1))
      chart.append(
          svg('line', {class: 'grid', x1: X(tick), x2: X(tick), y1: margin.top, y2: height - margin.bottom}),
          svg('text', {x: X(tick), y: height - margin.bottom + 14, 'text-anchor': 'middle'}, digits(tick, 1)));
    for (const tick of logTicks(y0, y1))
      chart.append(
          svg('line', {class: 'grid', x1: margin.left, x2: width - margin.right, y1: Y(tick), y2: Y(tick)}),
          svg('text', {x: margin.left - 6, y: Y(tick) + 4, 'text-anchor': 'end'}, digits(tick, 1)));
    chart.append(
        svg('text', {x: (width + margin.left) / 2, y: height - 6, 'text-anchor': 'middle'}, xTitle),
        svg('text', {x: 12, y: height / 2, 'text-anchor': 'middle', transform: `rotate(-90 12 ${height / 2})`},
            yTitle));
    for (const line of lines) {
      chart.append(svg('polyline', {
        class: 'roof',
        points: line.points.map(([x, y]) => `${X(x)},${Y(y)}`).join(' '),
        style: line.color ? `stroke:${line.color}` : null
      }));
      if (line.label) {
        const [x, y] = line.points[line.points.length - 1];
        chart.append(svg('text', {class: 'ink', x: X(x) - 4, y: Y(y) - 5, 'text-anchor': 'end'}, line.label));
      }
    }
    const taken = [];
    for (const point of [...points].sort((a, b) => (b.r || 5) - (a.r || 5))) {
      const x = X(point.x), y = Y(point.y), r = point.r || 5;
      chart.append(
          svg('circle', {cx: x, cy: y, r, style: `fill:${point.color};fill-opacity:.75;stroke:${point.color}`},
              svg('title', {}, point.text)));
      const w = 6 * point.label.length, tx = x + r + 3, ty = y + 4;
      const isFree = tx + w < width &&
          !taken.some(other => tx < other[0] + other[2] && other[0] < tx + w && Math.abs(ty - other[1]) < 12);
      if (isFree) {
        taken.push([tx, ty, w]);
        chart.append(svg('text', {class: 'ink', x: tx, y: ty}, point.label));
      }
    }
    box.replaceChildren(chart);
  }
  redraws.push(draw);
  requestAnimationFrame(draw);
  return box;
}

// A step from left to right: lanes, layers, phases. rows: {layer, phase, lane, id, us}; pick(layer) is called for the
// chosen layer.
function timeline(rows, phases, pick, chosen, label) {
  const box = el('div', {tabindex: '0', 'aria-label': label + '. Left and right keys choose a layer.', role: 'group'});
  const lanes = ['compute', 'NVLink', 'network', 'host']
                    .map((name, lane) => ({name, lane}))
                    .filter(({lane}) => lane === 0 || rows.some(row => row.lane === lane));
  const blocks = [];
  let at = 0;
  for (const row of rows) {
    const last = blocks[blocks.length - 1];
    if (last && last.layer === row.layer && last.phase === row.phase && last.lane === row.lane) {
      last.us += row.us;
      ++last.ops;
    } else
      blocks.push({layer: row.layer, phase: row.phase, lane: row.lane, start: at, us: row.us, ops: 1});
    at += row.us;
  }
  const layers = [];
  for (const block of blocks) {
    const last = layers[layers.length - 1];
    if (last && last.layer === block.layer)
      last.end = block.start + block.us;
    else
      layers.push({layer: block.layer, start: block.start, end: block.start + block.us, place: layers.length});
  }
  let current = Math.max(0, layers.findIndex(item => item.layer === chosen));
  function draw() {
    const width = Math.max(320, box.clientWidth || 1000), left = 62, laneH = 26, top = 34;
    const X = us => left + (width - left - 8) * us / at;
    const height = top + lanes.length * laneH + 6;
    const chart = svg('svg', {width, height, viewBox: `0 0 ${width} ${height}`});
    lanes.forEach(
        ({name}, i) =>
            chart.append(svg('text', {x: left - 8, y: top + i * laneH + 16, 'text-anchor': 'end'}, name), svg('rect', {
                           x: left,
                           y: top + i * laneH + 2,
                           width: width - left - 8,
                           height: laneH - 4,
                           style: 'fill:var(--faint)'
                         })));
    let free = 0;
    for (const item of layers) {
      const name = item.layer < 0 ? '' : String(item.layer), x = X(item.start);
      if (name && x >= free) {
        chart.append(svg('text', {x, y: 30}, name));
        free = x + 26;
      }
    }
    chart.append(svg('text', {x: left - 8, y: 30, 'text-anchor': 'end'}, 'layer'));
    const unit = timeUnit(at), step = niceStep(at / 8);
    for (let tick = 0; tick <= at; tick += step)
      chart.append(
          svg('text',
              {x: X(tick),
               y: 12,
               'text-anchor': tick === 0 ? 'start' :
                   X(tick) > width - 40  ? 'end' :
                                           'middle'},
              digits(tick / unit.divisor, 3) + ' ' + unit.name),
          svg('line', {class: 'axis', x1: X(tick), x2: X(tick), y1: 15, y2: 19}));
    for (const block of blocks) {
      const i = lanes.findIndex(({lane}) => lane === block.lane);
      chart.append(
          svg('rect', {
            class: 'pick',
            x: X(block.start),
            y: top + i * laneH + 2,
            width: Math.max(.4, X(block.start + block.us) - X(block.start)),
            height: laneH - 4,
            style: `fill:${phaseColor(block.phase)}`,
            onclick: () => choose(layers.findIndex(
                item => item.layer === block.layer && item.start <= block.start && block.start <= item.end))
          },
              svg('title', {},
                  `${block.layer < 0 ? 'outside the layers' : 'layer ' + block.layer}, ${phases[block.phase]}: ${
                      timeText(block.us)}, ${block.ops} ops`)));
    }
    const item = layers[current];
    if (item)
      chart.append(svg('rect', {
        x: X(item.start) - 1,
        y: top - 2,
        width: Math.max(3, X(item.end) - X(item.start) + 2),
        height: lanes.length * laneH + 4,
        style: 'fill:none;stroke:var(--ink);stroke-width:1.5'
      }));
    box.replaceChildren(chart);
  }
  function choose(place) {
    if (place < 0 || place >= layers.length) return;
    current = place;
    draw();
    pick(layers[current].layer);
  }
  box.onkeydown = event => {
    if (event.key === 'ArrowRight' || event.key === 'ArrowLeft') {
      event.preventDefault();
      choose(current + (event.key === 'ArrowRight' ? 1 : -1));
    }
  };
  redraws.push(draw);
  requestAnimationFrame(() => {
    draw();
    if (layers.length) pick(layers[current].layer);
  });
  return box;
}

function niceStep(rough) {
  const power = 10 ** Math.floor(Math.log10(rough));
  return power * [1, 2, 5, 10].find(part => part * power >= rough);
}

// Ops of one layer, a strip for each series on one scale. strips: [{title, rows: [{id, phase, us}]}]
function layerStrips(strips) {
  const box = el('div');
  function draw() {
    const width = Math.max(320, box.clientWidth || 1000), left = Math.min(190, width / 4), rowH = 30;
    const longest = Math.max(...strips.map(strip => sum(strip.rows.map(row => row.us))), 1e-9);
    const height = strips.length * rowH + 4;
    const chart = svg(
        'svg',
        {width, height, viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': 'ops of the layer by series'});
    strips.forEach((strip, s) => {
      chart.append(
          svg('text', {class: 'ink', x: left - 8, y: s * rowH + 19, 'text-anchor': 'end'},
              strip.title.length > 30 ? strip.title.slice(0, 29) + '\u2026' : strip.title));
      let at = 0;
      for (const row of strip.rows) {
        const x = left + (width - left - 80) * at / longest, w = (width - left - 80) * row.us / longest;
        at += row.us;
        chart.append(
            svg('rect', {
              x,
              y: s * rowH + 4,
              width: Math.max(.3, w),
              height: rowH - 8,
              style: `fill:${phaseColor(row.phase)};stroke:var(--card);stroke-width:${w > 3 ? 1 : 0}`
            },
                svg('title', {}, `${row.id}: ${timeText(row.us)}`)));
        const name = row.id.split('.').slice(-2).join('.');
        if (w > 6.2 * name.length)
          chart.append(svg('text', {x: x + 4, y: s * rowH + 19, style: 'fill:#fff;pointer-events:none'}, name));
      }
      chart.append(svg(
          'text', {class: 'ink', x: left + (width - left - 80) * at / longest + 6, y: s * rowH + 19}, timeText(at)));
    });
    box.replaceChildren(chart);
  }
  redraws.push(draw);
  requestAnimationFrame(draw);
  return box;
}
