// The sections of the page. Each takes the chosen scenario and returns its content, or null when there is nothing to show.

const seriesColor = ["var(--accent)", "var(--p4)", "var(--p3)", "var(--p5)", "var(--p2)"];

// The series of the charts, chosen once for all of them.
function seriesPicker(scenario) {
  return segments("show", scenario.series.map((series, i) => [i, series.title]), state.series, i => {
    const place = window.scrollY;
    state.series = i;
    draw();
    window.scrollTo(0, place);
  });
}

function main(scenario) { return scenario.series[scenario.main]; }

function phaseParts(scenario, series) {
  return data.phases.map((name, i) => ({label: name, value: series.phases[i], color: phaseColor(i), text: percent(series.phases[i], series.total)}))
    .filter(part => part.value > 0).sort((a, b) => b.value - a.value);
}

// ---- Summary

function rightTile(scenario) {
  const verification = data.verification;
  if (!verification) return tile("warn", "Is it right?", "not verified", el("p", {}, "Give the verdict of dsv3-verify --json with --verify."));
  const kind = {pass: "good", fail: "bad", undecided: "warn"}[verification.verdict];
  const uses = verification.ops.map(op => op[3]).filter(use => use !== null);
  const counts = Object.entries(verification.counts).map(([status, count]) => `${count} ${status}`).join(", ");
  return tile(kind, "Is it right?", verification.verdict.toUpperCase(),
    el("p", {}, `${verification.num_ops} ops against profile ${verification.profile}: ${counts}`),
    verification.first ? el("p", {}, el("b", {}, "First divergence: "), verification.first)
      : el("p", {}, `Largest use of a bound: ${digits(Math.max(0, ...uses), 2)} of 1`),
    scenario.verified ? null : el("p", {}, el("b", {}, "Of another model"), " than this scenario: ", fileName(verification.file)));
}

function tile(kind, question, answer, ...more) {
  return el("div", {class: "tile " + kind}, el("h3", {}, question), el("div", {class: "big"}, answer), more);
}

function timeTile(scenario) {
  const series = main(scenario), parts = phaseParts(scenario, series);
  return tile("plain", "Where does the time go?", [timeText(series.total), el("small", {}, " " + series.title)],
    stackedBar(parts, "share of phases"), legend(parts, 5));
}

function limitTile(scenario) {
  const series = main(scenario);
  const ratio = scenario.ratios.find(item => item.above === scenario.main && scenario.series[item.below].source === "limit");
  const clock = series.clock, shown = scenario.series.filter(item => item.clock === clock);
  const longest = Math.max(...shown.map(item => item.total));
  const bars = el("div", {class: "bars"}, shown.map(item => [el("span", {}, item.title.length > 26 ? item.title.slice(0, 25) + "\u2026" : item.title),
    el("span", {class: "track"}, el("i", {style: `width:${100 * item.total / longest}%`})), el("span", {}, timeText(item.total))]));
  if (!ratio) return tile("warn", "How far from the limit?", "unknown", el("p", {}, clock === "cpu" ? "A CPU time has no GPU limit. With records of dsv3-bench host its own roofline is drawn." : "No limit records."), bars);
  const value = series.total / scenario.series[ratio.below].total;
  return tile("plain", "How far from the limit?", [ratioText(value), el("small", {}, " " + ratio.title)], bars,
    el("p", {}, `${timeText(series.total - scenario.series[ratio.below].total)} above it in a step`));
}

function skewTile(scenario) {
  const waiting = data.phases.indexOf("waiting"), series = main(scenario);
  const us = series.phases[waiting];
  if (us > 0) {
    const kind = us > .1 * series.total ? "bad" : us > .03 * series.total ? "warn" : "good";
    return tile(kind, "What does skew cost?", [timeText(us), el("small", {}, ` ${percent(us, series.total)} of the step`)],
      el("p", {}, "The average rank waits for the fullest one in every MoE layer: routing sampled by the simulator."), eplbText());
  }
  const measured = scenario.series.find(item => item.measured && item.ranks.length > 1);
  if (measured) {
    const totals = measured.ranks.map(rank => sum(rank.us)), mean = sum(totals) / totals.length, most = Math.max(...totals);
    return tile(most > 1.1 * mean ? "bad" : "good", "What does skew cost?", [timeText(most - mean), el("small", {}, " slowest rank over mean")],
      el("p", {}, `Rank ${measured.ranks[totals.indexOf(most)].rank} is the slowest of ${totals.length}, ${ratioText(most / mean)} the mean; times of ops added up by rank.`));
  }
  return tile("plain", "What does skew cost?", "nothing here", el("p", {}, scenario.gpus > 1 ? "Every rank holds a slice of every expert in this layout: no rank waits for another." : "One rank: nobody waits."), eplbText());
}

function eplbText() {
  const table = data.sim.find(item => item.name === "skew");
  if (!table) return null;
  const plain = table.value.find(row => row.placement === "in order"), placed = table.value.find(row => row.placement === "EPLB" && row.ep === plain?.ep && row.tokens_per_rank === plain?.tokens_per_rank);
  if (!plain || !placed) return null;
  return el("p", {}, `dsv3-sim skew, EP${plain.ep}, ${plain.tokens_per_rank} tokens a rank: ${digits(plain.cost_ms)} ms a step in order, ${digits(placed.cost_ms)} ms with EPLB.`);
}

function findings(scenario) {
  const list = scenario.findings, mainIndex = scenario.main;
  const series = main(scenario);
  const short = (title, rows, columns) => el("div", {}, el("h3", {}, title), el("table", {}, el("tbody", {}, rows.map(row => el("tr", {}, columns(row))))));
  const name = row => el("td", {class: "text"}, swatch(data.phases.indexOf(row.phase)), el("span", {class: "mono"}, row.op), row.rows > 1 ? ` x${row.rows}` : "");
  return el("section", {"aria-label": "Findings"}, el("div", {class: "columns"},
    short(`Top costs, ${series.title}`, list.costs, row => [name(row), el("td", {}, timeText(row.us[mainIndex])), el("td", {}, percent(row.us[mainIndex], series.total))]),
    list.gaps.map(gap => {
      const ratio = scenario.ratios[gap.ratio];
      return short(`Biggest gaps, ${ratio.title}`, gap.ops, row => [name(row), el("td", {}, `+${timeText(row.value)}`), el("td", {}, ratioText(row.us[ratio.above] / row.us[ratio.below]))]);
    }),
    list.layers.length ? short(`Layers that stand out, ${series.title}`, list.layers, row => [el("td", {class: "text"}, `layer ${row.layer}`), el("td", {}, timeText(row.us)), el("td", {}, `+${timeText(row.more)} over the median of its ops`)]) : null));
}

function regressionNotice() {
  const regression = data.regression;
  if (!regression || regression.slower + regression.faster === 0) return null;
  return el("div", {class: "notice" + (regression.slower ? " warning" : ""), role: "note"}, `Against the baseline: ${regression.slower} records slower, ${regression.faster} faster, ${regression.same} the same. `, el("a", {href: "#regression"}, "Which"));
}

function summarySection(scenario) {
  const warnings = data.notices.filter(notice => notice.warning);
  return el("div", {}, warnings.map(notice => el("div", {class: "notice warning", role: "note"}, notice.text)), regressionNotice(),
    el("div", {class: "tiles"}, rightTile(scenario), timeTile(scenario), limitTile(scenario), skewTile(scenario)),
    el("div", {style: "height:.9rem"}), findings(scenario));
}

// ---- One token

function layersText(row) {
  if (row.first < 0 && row.last < 0) return "";
  const first = Math.max(0, row.first);
  return row.layers === 1 || first === row.last ? `${row.last}` : `${first}-${row.last}`;
}

// A limit below 10 ns an op (gains of a norm) is no limit worth dividing by.
function ratioOf(ratio, rows, us) {
  const timed = rows.filter(row => us(row)[ratio.above] > 0 && us(row)[ratio.below] > 0);
  const all = rows.length === 1 ? timed : rows;
  const a = sum(all.map(row => us(row)[ratio.above])), b = sum(all.map(row => us(row)[ratio.below]));
  const count = sum(rows.map(row => row.rows || 1));
  return a > 0 && b > .01 * count && timed.length ? a / b : null;
}

function ratioColumns(scenario, us) {
  return scenario.ratios.map(ratio => ({title: ratio.title, get: row => ratioOf(ratio, [row], us), show: row => ratioText(ratioOf(ratio, [row], us)),
    sum: true, showSum: rows => ratioText(ratioOf(ratio, rows, us))}));
}

function timeColumns(scenario, us) {
  return scenario.series.map((series, i) => {
    const unit = timeUnit(series.total);
    return {title: series.title, unit: unit.name, get: row => us(row)[i], show: row => us(row)[i] === null || us(row)[i] === undefined ? "-" : digits(us(row)[i] / unit.divisor),
      sum: true, showSum: (rows, total) => total > 0 ? digits(total / unit.divisor) : "-"};
  });
}

function journeySection(scenario) {
  const us = row => row.us, largest = Math.max(...scenario.journey.map(row => row.us[scenario.main])), total = main(scenario).total;
  return el("div", {}, el("p", {class: "what"}, `The way of one ${scenario.phase} step through the model, added up by stage. Times are of the slowest rank; GPU and CPU clocks are never divided by one another.`),
    makeTable({id: "journey-table", rows: scenario.journey, total: true, columns: [
      {title: "stage", text: true, get: row => row.row},
      {title: "layers", text: true, get: layersText},
      ...timeColumns(scenario, us), ...ratioColumns(scenario, us),
      {title: "share", unit: main(scenario).title, get: row => row.us[scenario.main], show: row => [percent(row.us[scenario.main], total) + " ", el("span", {class: "cellbar", style: `width:${largest > 0 ? 70 * row.us[scenario.main] / largest : 0}px`})]},
      {title: "weights, cache", get: row => row.bytes, show: row => bytesText(row.bytes), sum: true, showSum: (rows, total_) => bytesText(total_)},
      {title: "products", get: row => row.flops, show: row => flopsText(row.flops), sum: true, showSum: (rows, total_) => flopsText(total_)},
    ]}));
}

// ---- Rows of the scenario

function rowsOf(scenario) {
  if (scenario.list) return scenario.list;
  const table = scenario.rows;
  scenario.list = table.id.map((id, i) => ({
    id: table.ids[id].replace("#", table.layer[i]), name: table.ids[id].replace(/^layer\.#\./, "").replace("#.", ""), layer: table.layer[i], phase: table.phase[i], lane: table.lane[i],
    kind: table.kinds[table.kind[i]], dtype: table.dtypes[table.dtype[i]], flops: table.flops[i], weight: table.weight[i], act: table.act[i], kv: table.kv[i], wire: table.wire[i],
    status: table.status[i], use: table.use[i], us: table.us.map(column => column[i]), noise: table.noise.map(column => column ? column[i] : null),
  }));
  return scenario.list;
}

function timelineSection(scenario) {
  const series = scenario.series[state.series];
  const rows = rowsOf(scenario).filter(row => row.us[state.series] > 0).map(row => ({...row, us: row.us[state.series]}));
  if (!rows.length) return null;
  const detail = el("div", {id: "layer-detail"});
  const pick = layer => {
    const strips = scenario.series.map((item, i) => ({item, i})).filter(({item}) => item.clock === series.clock)
      .map(({item, i}) => ({title: item.title, rows: rowsOf(scenario).filter(row => row.layer === layer && row.us[i] > 0).map(row => ({id: row.id, phase: row.phase, us: row.us[i]}))}));
    const members = rowsOf(scenario).filter(row => row.layer === layer);
    detail.replaceChildren(el("h3", {}, layer < 0 ? "Outside the layers" : `Layer ${layer}`), layerStrips(strips),
      lateTable(`Table: ops of ${layer < 0 ? "no layer" : "layer " + layer}`, () => makeTable({rows: members, total: true, columns: [
        {title: "op", text: true, get: row => row.id, show: row => el("span", {class: "mono"}, row.id)}, ...timeColumns(scenario, row => row.us), ...ratioColumns(scenario, row => row.us)]})));
  };
  const middle = rows.filter(row => row.layer >= 0)[Math.floor(rows.length / 2)];
  const parts = phaseParts(scenario, series);
  return el("div", {}, el("p", {class: "what"}, "One step, its ops one after another in the order of the model; a record says how long an op took, not when it began, so what overlaps is not shown overlapping. Click a layer, or use the arrow keys."),
    seriesPicker(scenario), legend(parts, 12), timeline(rows, data.phases, pick, middle ? middle.layer : -1, "Timeline of " + series.title), detail);
}

function opsSection(scenario) {
  const box = el("div");
  const byLayer = rowsOf(scenario);
  const chosen = {mode: "op", phase: "all"};
  function show() {
    const isByLayer = chosen.mode === "layer";
    let rows = isByLayer ? byLayer : scenario.by_op;
    if (chosen.phase !== "all") rows = rows.filter(row => row.phase === chosen.phase);
    const us = row => row.us;
    const phaseSelect = el("select", {"aria-label": "phase", onchange: event => { chosen.phase = event.target.value === "all" ? "all" : Number(event.target.value); show(); }},
      el("option", {value: "all"}, "all phases"), data.phases.map((name, i) => scenario.by_op.some(row => row.phase === i) ? el("option", {value: i, selected: chosen.phase === i}, name) : null));
    const columns = isByLayer ? [
      {title: "op", text: true, get: row => row.id, show: row => [swatch(row.phase), el("span", {class: "mono"}, row.id)]},
      {title: "layer", get: row => row.layer, show: row => row.layer < 0 ? "" : String(row.layer)},
      {title: "kind", text: true, get: row => `${row.kind} ${row.dtype.toLowerCase()}`},
      ...timeColumns(scenario, us), ...ratioColumns(scenario, us), ...noiseColumns(scenario),
      {title: "weights", get: row => row.weight, show: row => bytesText(row.weight), sum: true, showSum: (all, total) => bytesText(total)},
      {title: "cache", get: row => row.kv, show: row => bytesText(row.kv), sum: true, showSum: (all, total) => bytesText(total)},
      {title: "sent", get: row => row.wire, show: row => bytesText(row.wire), sum: true, showSum: (all, total) => bytesText(total)},
      {title: "products", get: row => row.flops, show: row => flopsText(row.flops), sum: true, showSum: (all, total) => flopsText(total)},
      ...(scenario.verified ? [{title: "verified", text: true, get: row => row.status, show: row => statusBadge(row.status)}, {title: "of bound", get: row => row.use, show: row => digits(row.use, 2)}] : []),
    ] : [
      {title: "op", text: true, get: row => row.op + " " + data.phases[row.phase], show: row => [swatch(row.phase), el("span", {class: "mono"}, row.op)]},
      {title: "times", get: row => row.rows, show: row => String(row.rows), sum: false},
      ...timeColumns(scenario, us), ...ratioColumns(scenario, us),
      {title: "share", unit: main(scenario).title, get: row => row.us[scenario.main], show: row => percent(row.us[scenario.main], main(scenario).total), sum: true, showSum: (all, total) => percent(total, main(scenario).total)},
      {title: "weights, cache", get: row => row.bytes, show: row => bytesText(row.bytes), sum: true, showSum: (all, total) => bytesText(total)},
      {title: "products", get: row => row.flops, show: row => flopsText(row.flops), sum: true, showSum: (all, total) => flopsText(total)},
      ...(scenario.verified ? [{title: "verified", text: true, get: row => worstStatus(byLayer, row), show: row => statusBadge(worstStatus(byLayer, row))}] : []),
    ];
    const timeColumn = columns.findIndex(column => column.title === main(scenario).title);
    box.replaceChildren(makeTable({id: "ops-table", rows, columns, filter: true, total: true, sort: [timeColumn, true],
      group: row => data.phases[row.phase], groupIcon: name => swatch(data.phases.indexOf(name)),
      controls: [segments("rows", [["op", "one an op"], ["layer", "one an op and layer"]], chosen.mode, mode => { chosen.mode = mode; show(); }), el("label", {}, "phase", phaseSelect)]}));
  }
  show();
  return el("div", {}, el("p", {class: "what"}, "Every op, grouped by phase. Headings sort, groups close. Limit: what weights and cache, or the products, take at the peak (activations may stay on the chip); scores and values are one pass over the cache, counted at probs. A dash: nothing counted, nothing known, or a limit below 10 ns an op."), box);
}

function noiseColumns(scenario) {
  return scenario.series.map((series, i) => ({series, i})).filter(({i}) => scenario.rows.noise[i]).map(({series, i}) => ({
    title: "p10 to p90", unit: series.title, get: row => row.noise[i] ? row.noise[i][1] - row.noise[i][0] : null,
    show: row => row.noise[i] ? `${digits(row.noise[i][0])} to ${digits(row.noise[i][1])} us, n ${row.noise[i][2]}` : "-"}));
}

const kWorst = ["", "same", "order", "variant", "flip", "undecided", "missing", "diverged"];
function worstStatus(rows, sumRow) {
  let worst = "";
  for (const row of rows) if (row.phase === sumRow.phase && (row.name === sumRow.op || row.id === sumRow.op) && kWorst.indexOf(baseStatus(row.status)) > kWorst.indexOf(baseStatus(worst))) worst = row.status;
  return worst;
}

// ---- Roofline

function rooflineSection(scenario) {
  const series = scenario.series[state.series];
  const hardware = scenario.hardware;
  const isCpu = series.clock === "cpu";
  const intro = el("p", {class: "what"}, "Products over bytes of weights and cache, ops added up over layers; the larger a point, the longer it takes. Left of the corner memory is the limit, right of it the tensor cores.");
  if (isCpu && !scenario.host) return el("div", {}, intro, seriesPicker(scenario), el("p", {}, "This is a CPU time and the CPU's peaks are not known: give records of dsv3-bench host."));
  const rate = isCpu ? scenario.host.bytes_per_us / 1e6 : hardware.memory_gb_per_s.value / 1e3;  // TB/s
  const peaks = isCpu ? [["FP32 FMA loop", scenario.host.flops_per_us / 1e6]]
    : [["BF16", hardware.bf16_tflops.value], ...(hardware.fp8_tflops ? [["FP8", hardware.fp8_tflops.value]] : [])];
  const rows = scenario.by_op.filter(row => row.bytes > 0 && row.flops > 0 && row.us[state.series] > 0).map(row => {
    const intensity = row.flops / row.bytes, tflops = row.flops / row.us[state.series] / 1e6;
    const roof = Math.min(peaks[peaks.length - 1][1], intensity * rate);
    return {...row, intensity, tflops, roof, share: tflops / roof};
  });
  if (!rows.length) return null;
  const total = Math.max(...rows.map(row => row.us[state.series]));
  const low = Math.min(...rows.map(row => row.intensity)) / 2, highest = peaks[peaks.length - 1][1];
  const high = Math.max(...rows.map(row => row.intensity), highest / rate) * 3;
  const lines = [{points: [[low, low * rate], [highest / rate, highest]], label: null},
    ...peaks.map(([name, peak]) => ({points: [[peak / rate, peak], [high, peak]], label: `${name} ${digits(peak)} TFLOP/s`}))];
  const points = rows.map(row => ({x: row.intensity, y: row.tflops, r: 3 + 9 * Math.sqrt(row.us[state.series] / total), color: phaseColor(row.phase), label: row.op,
    text: `${row.op}: ${digits(row.intensity)} FLOP/B, ${digits(row.tflops)} TFLOP/s, ${timeText(row.us[state.series])}`}));
  return el("div", {}, intro, seriesPicker(scenario),
    logScatter({points, lines, xTitle: "FLOP a byte of weights and cache", yTitle: "TFLOP/s", label: "Roofline, " + series.title}),
    el("p", {class: "count"}, isCpu ? `${scenario.host.device}: ${digits(rate * 1e3)} GB/s, ${digits(highest * 1e3)} GFLOP/s, measured by dsv3-bench host`
      : `${hardware.title}: ${digits(rate * 1e3, 4)} GB/s (${hardware.memory_gb_per_s.source}); BF16 ${digits(hardware.bf16_tflops.value)} TFLOP/s (${hardware.bf16_tflops.source})`),
    lateTable("Table of the roofline", () => makeTable({rows, sort: [4, true], columns: [
      {title: "op", text: true, get: row => row.op, show: row => [swatch(row.phase), el("span", {class: "mono"}, row.op)]},
      {title: "bytes", get: row => row.bytes, show: row => bytesText(row.bytes)}, {title: "products", get: row => row.flops, show: row => flopsText(row.flops)},
      {title: "intensity", unit: "FLOP/B", get: row => row.intensity}, {title: "time", unit: "us", get: row => row.us[state.series]},
      {title: "reached", unit: "TFLOP/s", get: row => row.tflops}, {title: "roof", unit: "TFLOP/s", get: row => row.roof}, {title: "of the roof", unit: "%", get: row => 100 * row.share}]})));
}

// ---- Layers

function layersSection(scenario) {
  const rows = rowsOf(scenario).filter(row => row.layer >= 0);
  if (!rows.length) return null;
  const layers = [...new Set(rows.map(row => row.layer))].sort((a, b) => a - b);
  const names = [...new Set(rows.map(row => row.name))];
  const cells = new Map(rows.map(row => [row.name + " " + row.layer, row]));
  const metrics = [...scenario.series.map((series, i) => ({title: series.title, unit: "us", get: row => row.us[i]})),
    ...scenario.ratios.map(ratio => ({title: ratio.title, unit: "x", isRatio: true, get: row => ratioOf(ratio, [row], item => item.us)}))];
  const box = el("div");
  const show = index => {
    const metric = metrics[index], values = rows.map(metric.get).filter(value => value > 0);
    const low = Math.min(...values), high = Math.max(...values), strong = metric.isRatio ? "--heat1" : "--seq1";
    const share = value => high > low ? Math.log(value / low) / Math.log(high / low) : 1;
    const at = (r, c) => { const row = cells.get(names[r] + " " + layers[c]); return row ? metric.get(row) || null : null; };
    box.replaceChildren(heatMap({label: "Ops by layer, " + metric.title, rows: names, columns: layers.map(String), value: at, color: value => shade(.06 + .94 * share(value), strong),
      read: (r, c) => { const row = cells.get(names[r] + " " + layers[c]); return row ? `${row.id}: ${metric.title} ${metric.get(row) > 0 ? digits(metric.get(row)) + " " + metric.unit : "-"}` + (row.status ? `, ${row.status}` : "") : `layer ${layers[c]} has no ${names[r]}`; }}),
      scaleLegend(digits(low) + " " + metric.unit, digits(high) + " " + metric.unit + " (logarithmic)", strong));
  };
  show(state.series);
  const totals = layers.map(layer => ({layer, us: scenario.series.map((series, i) => sum(rows.filter(row => row.layer === layer).map(row => row.us[i])))}));
  return el("div", {}, el("p", {class: "what"}, "Every op of every layer. One layer that stands out is a finding; a whole row that is dark is where to work."),
    segments("colour", metrics.map((metric, i) => [i, metric.title]), state.series, show), box,
    lateTable("Table: layers added up", () => makeTable({rows: totals, total: true, columns: [{title: "layer", text: true, get: row => row.layer, show: row => String(row.layer)}, ...timeColumns(scenario, row => row.us), ...ratioColumns(scenario, row => row.us)]})));
}

// ---- Ranks and skew

const numbered = (row, prefix) => Object.keys(row).filter(key => key.startsWith(prefix)).map(key => [Number(key.slice(prefix.length)), row[key]]).sort((a, b) => a[0] - b[0]).map(pair => pair[1]);

// Blue below a fair share, red above; `high` is the end of the scale, the same for placements that are compared.
function loadColor(value, high) {
  const share = Math.abs(Math.log(Math.max(value, 1e-3))) / Math.log(Math.max(high, 1.5));
  return value < 1 ? shade(.7 * Math.min(1, share)) : shade(share, "--heat1");
}

function loadMap(table, prefix, what, rows, high) {
  const loads = rows.map(row => numbered(row, prefix));
  return el("div", {}, heatMap({label: `${what} by layer`, rows: rows.map(row => "layer " + row.layer), columns: loads[0].map((value, i) => String(i)), minWidth: 2, maxWidth: 40, value: (r, c) => loads[r][c],
    color: value => loadColor(value, high), read: (r, c) => `layer ${rows[r].layer}, ${what} ${c}: ${digits(loads[r][c])} times the mean`}),
    scaleLegend("fair share", digits(high) + " times (logarithmic)", "--heat1"), el("span", {class: "count"}, ` blue: below; fullest here ${digits(Math.max(...loads.flat()))}; ${fileName(table.file)}`),
    lateTable(`Table: ${what}s by layer`, () => makeTable({rows: rows.map((row, r) => ({layer: row.layer, loads: loads[r]})), sort: [1, true], columns: [
      {title: "layer", get: row => row.layer, show: row => String(row.layer)}, {title: "fullest", unit: "of the mean", get: row => Math.max(...row.loads)},
      {title: what, text: true, get: row => String(row.loads.indexOf(Math.max(...row.loads)))}, {title: "emptiest", unit: "of the mean", get: row => Math.min(...row.loads)},
      {title: "below half the mean", get: row => row.loads.filter(load => load < .5).length, show: row => String(row.loads.filter(load => load < .5).length)}]})));
}

function skewSection(scenario) {
  const content = [];
  for (const [i, series] of scenario.series.entries()) {
    if (series.ranks.length < 2) continue;
    const used = data.phases.map((name, p) => p).filter(p => series.ranks.some(rank => rank.us[p] > 0));
    const means = used.map(p => sum(series.ranks.map(rank => rank.us[p])) / series.ranks.length);
    content.push(el("h3", {}, `Time of each rank, ${series.title}`), heatMap({label: "time of each rank by phase", rows: used.map(p => data.phases[p]), columns: series.ranks.map(rank => String(rank.rank)),
      value: (r, c) => series.ranks[c].us[used[r]] / means[r], color: value => loadColor(value, 2),
      read: (r, c) => `rank ${series.ranks[c].rank}, ${data.phases[used[r]]}: ${timeText(series.ranks[c].us[used[r]])}, ${digits(series.ranks[c].us[used[r]] / means[r])} times the mean`}),
      lateTable("Table: ranks", () => makeTable({rows: series.ranks, sort: [1, true], columns: [{title: "rank", get: row => row.rank, show: row => String(row.rank)}, {title: "all", unit: "us", get: row => sum(row.us)},
        ...used.map(p => ({title: data.phases[p], unit: "us", get: row => row.us[p]}))]})));
  }
  for (const table of data.sim.filter(item => item.name === "skew")) {
    content.push(el("h3", {}, "What unequal experts cost, dsv3-sim skew"), makeTable({id: "skew-table", rows: table.value, columns: [
      {title: "EP", get: row => row.ep, show: row => String(row.ep)}, {title: "tokens", unit: "a rank", get: row => row.tokens_per_rank, show: row => String(row.tokens_per_rank)}, {title: "placement", text: true, get: row => row.placement},
      {title: "rank max/mean", unit: "p50", get: row => row.rank_max_over_mean_p50}, {title: "MoE step", unit: "ms p50", get: row => row.step_ms_p50}, {title: "MoE step", unit: "ms p99", get: row => row.step_ms_p99},
      {title: "waiting", unit: "ms", get: row => row.wait_ms}, {title: "more than balanced", unit: "ms", get: row => row.cost_ms, show: row => [digits(row.cost_ms) + " ", el("span", {class: "cellbar", style: `width:${Math.max(0, 80 * row.cost_ms / Math.max(...table.value.map(other => other.cost_ms), 1e-9))}px;background:var(--p6)`})]}]}),
      el("p", {class: "count"}, fileName(table.file)));
  }
  for (const table of data.sim.filter(item => item.name === "rank_load")) {
    const high = Math.max(...table.value.flatMap(row => numbered(row, "rank_")));
    for (const placement of [...new Set(table.value.map(row => row.placement))]) content.push(el("h3", {}, `Load of each rank, experts placed ${placement}`), loadMap(table, "rank_", "rank", table.value.filter(row => row.placement === placement), high));
  }
  for (const table of data.sim.filter(item => item.name === "expert_load")) content.push(el("h3", {}, "Load of each expert"), loadMap(table, "expert_", "expert", table.value, Math.max(...table.value.flatMap(row => numbered(row, "expert_")))));
  return content.length ? el("div", {}, el("p", {class: "what"}, "A MoE layer takes as long as its fullest rank. Tables of dsv3-sim are of the deployment in their file, which need not be this scenario's."), content) : null;
}

function matrixSection() {
  const tables = data.sim.filter(item => item.name === "matrix");
  if (!tables.length) return null;
  return el("div", {}, el("p", {class: "what"}, "Copies of tokens from rank (row) to rank (column) in one MoE layer; the diagonal stays."), tables.map(table => {
    const copies = table.value.map(row => numbered(row, "to_")), high = Math.max(...copies.flat(), 1);
    const rows = table.value.map((row, r) => ({rank: row.from, sent: sum(copies[r]) - copies[r][r], received: sum(copies.map(line => line[r])) - copies[r][r], kept: copies[r][r], cells: copies[r]}));
    return el("div", {}, heatMap({label: "copies from rank to rank", rows: table.value.map(row => "from " + row.from), columns: copies[0].map((value, i) => String(i)), maxWidth: 22, value: (r, c) => copies[r][c],
      color: value => shade(value / high), read: (r, c) => `from rank ${table.value[r].from} to rank ${c}: ${copies[r][c]} copies`}), scaleLegend("0", high + " copies"), el("p", {class: "count"}, fileName(table.file)),
      lateTable("Table: copies", () => makeTable({rows, columns: [{title: "rank", get: row => row.rank, show: row => String(row.rank)}, {title: "sent", get: row => row.sent, show: row => String(row.sent)}, {title: "received", get: row => row.received, show: row => String(row.received)},
        {title: "kept", get: row => row.kept, show: row => String(row.kept)}, ...(copies.length <= 64 ? copies[0].map((value, c) => ({title: "to " + c, get: row => row.cells[c], show: row => String(row.cells[c])})) : [])]})));
  }));
}

// ---- Layouts, verification, memory, regression, inputs

function paretoSection() {
  const tables = data.sim.filter(item => item.name === "pareto");
  if (!tables.length) return null;
  const rows = tables.flatMap((table, t) => table.value.map(row => ({...row, table: t, file: fileName(table.file)})));
  const points = rows.map(row => ({x: row.tokens_per_s_per_user, y: row.tokens_per_s_per_gpu, color: seriesColor[row.table % seriesColor.length], label: row.parallel.replace(/ (pp|dp|tp|ep)1\b/g, "").replace(/^(pp|dp|tp)1 /, ""),
    text: `${row.parallel}, ${digits(row.bs)} sequences a DP rank on ${row.num_total_gpus} GPUs: ${digits(row.tokens_per_s_per_user)} tokens/s a user, ${digits(row.tokens_per_s_per_gpu)} a GPU`}));
  return el("div", {}, el("p", {class: "what"}, "Layouts and batches that no other beats: fast for a user to the right, cheap a token to the top. Predictions of dsv3-sim search."),
    tables.length > 1 ? legend(tables.map((table, t) => ({color: seriesColor[t % seriesColor.length], label: fileName(table.file), text: ""}))) : null,
    logScatter({points, xTitle: "tokens/s a user", yTitle: "tokens/s a GPU", label: "Pareto front of layouts"}),
    makeTable({id: "pareto-table", rows, most: 40, sort: [3, true], columns: [{title: "layout", text: true, get: row => row.parallel}, {title: "GPUs", get: row => row.num_total_gpus, show: row => String(row.num_total_gpus)}, {title: "sequences", unit: "a DP rank", get: row => row.bs},
      {title: "tokens/s", unit: "a user", get: row => row.tokens_per_s_per_user}, {title: "tokens/s", unit: "a GPU", get: row => row.tokens_per_s_per_gpu}, {title: "a token", unit: "ms", get: row => row.tpot_ms},
      {title: "90 % interval", unit: "ms", get: row => row.tpot_low_ms, show: row => row.tpot_low_ms ? `${digits(row.tpot_low_ms)} to ${digits(row.tpot_high_ms)}` : "-"}, {title: "first token", unit: "ms", get: row => row.ttft_ms},
      {title: "memory", unit: "GB", get: row => row.memory_gb}, {title: "file", text: true, get: row => row.file}]}));
}

function verifySection() {
  const verification = data.verification;
  if (!verification) return null;
  const layerOf = id => { const found = /^(?:layer|cache)\.(\d+)\./.exec(id); return found ? found[1] : id.startsWith("mtp.") ? "MTP" : "-"; };
  const columns = [...new Set(verification.worst.map(op => layerOf(op[0])))].sort((a, b) => (a === "-") - (b === "-") || (a === "MTP") - (b === "MTP") || a - b);
  const names = [...new Set(verification.worst.map(op => op[1]))];
  const cells = new Map(verification.worst.map(op => [op[1] + " " + layerOf(op[0]), op]));
  const color = op => ({diverged: css("--bad"), undecided: css("--warn"), missing: css("--warn")})[baseStatus(op[2])] || shade(.12 + .88 * Math.min(1, op[3] || 0));
  return el("div", {}, el("p", {class: "what"}, `${fileName(verification.file)}: each op recomputed from the dump's own inputs. The map shows the largest share of its bound that an element needs, the worst of all cases; red diverged, amber was not decided.`),
    el("p", {}, el("span", {class: "status " + (verification.verdict === "pass" ? "pass" : "s-" + (verification.verdict === "fail" ? "diverged" : "undecided"))}, verification.verdict.toUpperCase()), ` profile ${verification.profile}. `, verification.first ? "First divergence: " + verification.first : null),
    heatMap({label: "bound use by op and layer", rows: names, columns: columns.map(column => column === "-" ? "none" : column), value: (r, c) => cells.get(names[r] + " " + columns[c]) || null, color,
      read: (r, c) => { const op = cells.get(names[r] + " " + columns[c]); return op ? `${op[0]}: ${op[2]}, bound use ${digits(op[3], 2)}` : `no ${names[r]} there`; }}), scaleLegend("0: the reference's bits", "1: all of the bound"),
    verification.notes.map(note => el("p", {class: "count"}, note)),
    makeTable({id: "verify-table", rows: verification.ops, filter: true, most: 25, sort: [3, true], columns: [{title: "case", text: true, get: op => op[0]}, {title: "op", text: true, get: op => op[1], show: op => el("span", {class: "mono"}, op[1])},
      {title: "status", text: true, get: op => op[2], show: op => statusBadge(op[2])}, {title: "of bound", get: op => op[3], show: op => digits(op[3], 2)}, {title: "steps", unit: "ulp", get: op => op[4], show: op => digits(op[4], 2)},
      {title: "cosine", unit: "free-running", get: op => op[5], show: op => op[5] === null ? "-" : op[5].toFixed(6)}, {title: "remark", text: true, wrap: true, get: op => op[6]}]}));
}

function memorySection() {
  const tables = data.sim.filter(item => item.name === "memory");
  if (!tables.length) return null;
  return el("div", {}, el("p", {class: "what"}, "Memory of the fullest decode GPU with all sequences asked for, dsv3-sim estimate."), tables.map(table => {
    const items = table.value.filter(row => row.item !== "total" && row.bytes > 0), total = sum(items.map(row => row.bytes));
    const estimate = data.sim.find(item => item.name === "estimate" && item.file === table.file)?.value;
    const parts = items.map((row, i) => ({label: row.item, value: row.bytes, color: phaseColor((i * 5 + 1) % 12), text: bytesText(row.bytes)}));
    const room = estimate ? Math.max(0, estimate.memory_usable_gb * 1e9 - total) : 0;
    if (room > 0) parts.push({label: "free", value: room, color: "var(--faint)", text: bytesText(room)});
    return el("div", {}, el("h3", {}, `${fileName(table.file)}: ${bytesText(total)}` + (estimate ? ` of ${digits(estimate.memory_usable_gb)} GB usable, ${estimate.decode_layout}` : ""), estimate && total > estimate.memory_usable_gb * 1e9 ? el("span", {class: "slow"}, " does not fit at once") : null),
      stackedBar(parts, "memory"), legend(parts, 12), lateTable("Table: memory", () => makeTable({rows: items, total: true, sort: [1, true], columns: [{title: "item", text: true, get: row => row.item}, {title: "GB", get: row => row.bytes / 1e9, sum: true}, {title: "formula", text: true, wrap: true, get: row => row.formula || ""}]})));
  }));
}

function regressionSection() {
  const regression = data.regression;
  if (!regression) return null;
  return el("div", {}, el("p", {class: "what"}, `${regression.compared} records of the baseline have a partner here. A change counts when it is over 1 % and over ${digits(regression.sigmas, 2)} standard errors of the difference, from p10, p90 and repetitions: one false alarm in a hundred such reports. Drift of a whole machine between two runs is not noise of this kind.`),
    el("p", {}, el("b", {class: regression.slower ? "slow" : null}, `${regression.slower} slower`), ", ", el("b", {class: regression.faster ? "fast" : null}, `${regression.faster} faster`), `, ${regression.same} the same, ${regression.unclear} unclear (no noise known); ${regression.only_new} only here, ${regression.only_old} only in the baseline.`),
    makeTable({id: "regression-table", rows: regression.ops, filter: true, most: 40, columns: [{title: "op", text: true, get: op => op[0], show: op => el("span", {class: "mono"}, op[0])}, {title: "source", text: true, get: op => op[1]}, {title: "device", text: true, get: op => op[2]},
      {title: "phase", text: true, get: op => op[3]}, {title: "rank", get: op => op[4], show: op => String(op[4])}, {title: "before", unit: "us", get: op => op[5]}, {title: "now", unit: "us", get: op => op[6]},
      {title: "change", unit: "%", get: op => op[5] > 0 ? 100 * (op[6] / op[5] - 1) : null}, {title: "noise", unit: "us", get: op => op[7], show: op => op[7] > 0 ? digits(op[7], 2) : "-"},
      {title: "verdict", text: true, get: op => op[8], show: op => el("span", {class: {slower: "slow", faster: "fast"}[op[8]]}, op[8])}]}));
}

function inputsSection(scenario) {
  const figures = ["memory_gb_per_s", "bf16_tflops", "fp8_tflops", "nvlink_gb_per_s", "nic_gb_per_s"].filter(name => scenario.hardware[name]);
  return el("div", {}, data.notices.map(notice => el("div", {class: "notice" + (notice.warning ? " warning" : "")}, notice.text)),
    el("h3", {}, "Series of this scenario"), makeTable({rows: scenario.series, columns: [{title: "series", text: true, get: row => row.title}, {title: "source", text: true, get: row => row.source}, {title: "clock", text: true, get: row => row.clock === "gpu" ? "GPU" : "CPU: not comparable to a GPU"}, {title: "step", get: row => row.total, show: row => timeText(row.total)}, {title: "from", text: true, wrap: true, get: row => row.origin}]}),
    el("h3", {}, `Figures of ${scenario.hardware.title}`), makeTable({rows: figures, columns: [{title: "figure", text: true, get: name => name}, {title: "value", get: name => scenario.hardware[name].value}, {title: "source", text: true, wrap: true, get: name => scenario.hardware[name].source}]}),
    el("h3", {}, "Files"), el("ul", {class: "inputs"}, data.inputs.map(line => el("li", {}, line))),
    el("p", {class: "count"}, `config ${scenario.hash}; page written by dsv3 ${data.commit}`));
}
