// The sections of single ops: timeline, table, roofline, layers.

// ---- Rows of the scenario

function rowsOf(scenario) {
  if (scenario.list) return scenario.list;
  const table = scenario.rows;
  scenario.list = table.id.map((id, i) => ({
                                 id: table.ids[id].replace('#', table.layer[i]),
                                 name: table.ids[id].replace(/^layer\.#\./, '').replace('#.', ''),
                                 layer: table.layer[i],
                                 phase: table.phase[i],
                                 lane: table.lane[i],
                                 kind: table.kinds[table.kind[i]],
                                 dtype: table.dtypes[table.dtype[i]],
                                 flops: table.flops[i],
                                 weight: table.weight[i],
                                 act: table.act[i],
                                 kv: table.kv[i],
                                 wire: table.wire[i],
                                 status: table.status[i],
                                 use: table.use[i],
                                 us: table.us.map(column => column[i]),
                                 noise: table.noise.map(column => column ? column[i] : null),
                               }));
  return scenario.list;
}

function timelineSection(scenario) {
  const series = scenario.series[state.series];
  const rows =
      rowsOf(scenario).filter(row => row.us[state.series] > 0).map(row => ({...row, us: row.us[state.series]}));
  if (!rows.length) return null;
  const detail = el('div', {id: 'layer-detail'});
  const pick = layer => {
    const strips = scenario.series.map((item, i) => ({item, i}))
                       .filter(({item}) => item.clock === series.clock)
                       .map(({item, i}) => ({
                              title: item.title,
                              rows: rowsOf(scenario)
                                        .filter(row => row.layer === layer && row.us[i] > 0)
                                        .map(row => ({id: row.id, phase: row.phase, us: row.us[i]}))
                            }));
    const members = rowsOf(scenario).filter(row => row.layer === layer);
    detail.replaceChildren(
        el('h3', {}, layer < 0 ? 'Outside the layers' : `Layer ${layer}`), layerStrips(strips),
        lateTable(
            `Table: ops of ${layer < 0 ? 'no layer' : 'layer ' + layer}`,
            () => makeTable({
              rows: members,
              total: true,
              columns: [
                {title: 'op', text: true, get: row => row.id, show: row => el('span', {class: 'mono'}, row.id)},
                ...timeColumns(scenario, row => row.us, members), ...ratioColumns(scenario, row => row.us)
              ]
            })));
  };
  const middle = rows.filter(row => row.layer >= 0)[Math.floor(rows.length / 2)];
  const parts = phaseParts(scenario, series);
  return el(
      'div', {},
      el('p', {class: 'what'},
         'One step, its ops one after another in the order of the model; a record says how long an op took, not when it began, so what overlaps is not shown overlapping. Click a layer, or use the arrow keys.'),
      seriesPicker(scenario), legend(parts, 12),
      timeline(rows, data.phases, pick, middle ? middle.layer : -1, 'Timeline of ' + series.title), detail);
}

function opsSection(scenario) {
  const box = el('div');
  const byLayer = rowsOf(scenario);
  const chosen = {mode: 'op', phase: 'all'};
  function show() {
    const isByLayer = chosen.mode === 'layer';
    let rows = isByLayer ? byLayer : scenario.by_op;
    if (chosen.phase !== 'all') rows = rows.filter(row => row.phase === chosen.phase);
    const us = row => row.us;
    const phaseSelect =
        el('select', {
          'aria-label': 'phase',
          onchange: event => {
            chosen.phase = event.target.value === 'all' ? 'all' : Number(event.target.value);
            show();
          }
        },
           el('option', {value: 'all'}, 'all phases'),
           data.phases.map(
               (name, i) => scenario.by_op.some(row => row.phase === i) ?
                   el('option', {value: i, selected: chosen.phase === i}, name) :
                   null));
    const columns = isByLayer ?
        [
          {
            title: 'op',
            text: true,
            get: row => row.id,
            show: row => [swatch(row.phase), el('span', {class: 'mono'}, row.id)]
          },
          {title: 'layer', get: row => row.layer, show: row => row.layer < 0 ? '' : String(row.layer)},
          {title: 'kind', text: true, get: row => `${row.kind} ${row.dtype.toLowerCase()}`},
          ...timeColumns(scenario, us, rows),
          ...ratioColumns(scenario, us),
          ...noiseColumns(scenario),
          {
            title: 'weights',
            get: row => row.weight,
            show: row => bytesText(row.weight),
            sum: true,
            showSum: (all, total) => bytesText(total)
          },
          {
            title: 'cache',
            get: row => row.kv,
            show: row => bytesText(row.kv),
            sum: true,
            showSum: (all, total) => bytesText(total)
          },
          {
            title: 'sent',
            get: row => row.wire,
            show: row => bytesText(row.wire),
            sum: true,
            showSum: (all, total) => bytesText(total)
          },
          {
            title: 'products',
            get: row => row.flops,
            show: row => flopsText(row.flops),
            sum: true,
            showSum: (all, total) => flopsText(total)
          },
          ...(scenario.verified ?
                  [
                    {title: 'verified', text: true, get: row => row.status, show: row => statusBadge(row.status)},
                    {title: 'of bound', get: row => row.use, show: row => digits(row.use, 2)}
                  ] :
                  []),
        ] :
        [
          {
            title: 'op',
            text: true,
            get: row => row.op + ' ' + data.phases[row.phase],
            show: row => [swatch(row.phase), el('span', {class: 'mono'}, row.op)]
          },
          {title: 'times', get: row => row.rows, show: row => String(row.rows), sum: false},
          ...timeColumns(scenario, us, rows),
          ...ratioColumns(scenario, us),
          {
            title: 'share',
            unit: main(scenario).title,
            get: row => row.us[scenario.main],
            show: row => percent(row.us[scenario.main], main(scenario).total),
            sum: true,
            showSum: (all, total) => percent(total, main(scenario).total)
          },
          {
            title: 'weights, cache',
            get: row => row.bytes,
            show: row => bytesText(row.bytes),
            sum: true,
            showSum: (all, total) => bytesText(total)
          },
          {
            title: 'products',
            get: row => row.flops,
            show: row => flopsText(row.flops),
            sum: true,
            showSum: (all, total) => flopsText(total)
          },
          ...(scenario.verified ? [{
            title: 'verified',
            text: true,
            get: row => worstStatus(byLayer, row),
            show: row => statusBadge(worstStatus(byLayer, row))
          }] :
                                  []),
        ];
    const timeColumn = columns.findIndex(column => column.title === main(scenario).title);
    box.replaceChildren(makeTable({
      id: 'ops-table',
      rows,
      columns,
      filter: true,
      total: true,
      sort: [timeColumn, true],
      group: row => data.phases[row.phase],
      groupIcon: name => swatch(data.phases.indexOf(name)),
      controls: [
        segments(
            'rows', [['op', 'one an op'], ['layer', 'one an op and layer']], chosen.mode,
            mode => {
              chosen.mode = mode;
              show();
            }),
        el('label', {}, 'phase', phaseSelect)
      ]
    }));
  }
  show();
  return el(
      'div', {},
      el('p', {class: 'what'},
         'Every op, grouped by phase. Headings sort, groups close. Limit: what weights and cache, or the products, take at the peak (activations may stay on the chip); scores and values are one pass over the cache, counted at probs. A dash: nothing counted, nothing known, or a limit below 10 ns an op.'),
      sharesNotice(scenario), box);
}

function noiseColumns(scenario) {
  return scenario.series.map((series, i) => ({series, i}))
      .filter(({i}) => scenario.rows.noise[i])
      .map(
          ({series, i}) => ({
            title: 'p10 to p90',
            unit: series.title,
            get: row => row.noise[i] ? row.noise[i][1] - row.noise[i][0] : null,
            show: row =>
                row.noise[i] ? `${digits(row.noise[i][0])} to ${digits(row.noise[i][1])} us, n ${row.noise[i][2]}` : '-'
          }));
}

const kWorst = ['', 'same', 'order', 'variant', 'flip', 'undecided', 'missing', 'diverged'];
function worstStatus(rows, sumRow) {
  let worst = '';
  for (const row of rows)
    if (row.phase === sumRow.phase && (row.name === sumRow.op || row.id === sumRow.op) &&
        kWorst.indexOf(baseStatus(row.status)) > kWorst.indexOf(baseStatus(worst)))
      worst = row.status;
  return worst;
}

// ---- Roofline

function rooflineSection(scenario) {
  const series = scenario.series[state.series];
  const hardware = scenario.hardware;
  const isCpu = series.clock === 'cpu';
  const intro = el(
      'p', {class: 'what'},
      'Products over bytes of weights and cache, ops added up over layers; the larger a point, the longer it takes. Left of the corner memory is the limit, right of it the tensor cores.');
  if (isCpu && !scenario.host)
    return el(
        'div', {}, intro, seriesPicker(scenario),
        el('p', {}, 'This is a CPU time and the CPU\'s peaks are not known: give records of dsv3-bench host.'));
  const rate = isCpu ? scenario.host.bytes_per_us / 1e6 : hardware.memory_gb_per_s.value / 1e3;  // TB/s
  const peaks = isCpu ?
      [['FP32 FMA loop', scenario.host.flops_per_us / 1e6]] :
      [['BF16', hardware.bf16_tflops.value], ...(hardware.fp8_tflops ? [['FP8', hardware.fp8_tflops.value]] : [])];
  const rows = scenario.by_op.filter(row => row.bytes > 0 && row.flops > 0 && row.us[state.series] > 0).map(row => {
    const intensity = row.flops / row.bytes, tflops = row.flops / row.us[state.series] / 1e6;
    const roof = Math.min(peaks[peaks.length - 1][1], intensity * rate);
    return {...row, intensity, tflops, roof, share: tflops / roof};
  });
  if (!rows.length) return null;
  const total = Math.max(...rows.map(row => row.us[state.series]));
  const low = Math.min(...rows.map(row => row.intensity)) / 2, highest = peaks[peaks.length - 1][1];
  const high = Math.max(...rows.map(row => row.intensity), highest / rate) * 3;
  const lines = [
    {points: [[low, low * rate], [highest / rate, highest]], label: null},
    ...peaks.map(
        ([name, peak]) => ({points: [[peak / rate, peak], [high, peak]], label: `${name} ${digits(peak)} TFLOP/s`}))
  ];
  const points = rows.map(row => ({
                            x: row.intensity,
                            y: row.tflops,
                            r: 3 + 9 * Math.sqrt(row.us[state.series] / total),
                            color: phaseColor(row.phase),
                            label: row.op,
                            text: `${row.op}: ${digits(row.intensity)} FLOP/B, ${digits(row.tflops)} TFLOP/s, ${
                                timeText(row.us[state.series])}`
                          }));
  return el(
      'div', {}, intro, seriesPicker(scenario), logScatter({
        points,
        lines,
        xTitle: 'FLOP a byte of weights and cache',
        yTitle: 'TFLOP/s',
        label: 'Roofline, ' + series.title
      }),
      el('p', {class: 'count'},
         isCpu ? `${scenario.host.device}: ${digits(rate * 1e3)} GB/s, ${
                     digits(highest * 1e3)} GFLOP/s, measured by dsv3-bench host` :
                 `${hardware.title}: ${digits(rate * 1e3, 4)} GB/s (${hardware.memory_gb_per_s.source}); BF16 ${
                     digits(hardware.bf16_tflops.value)} TFLOP/s (${hardware.bf16_tflops.source})`),
      lateTable(
          'Table of the roofline', () => makeTable({
                                     rows,
                                     sort: [4, true],
                                     columns: [
                                       {
                                         title: 'op',
                                         text: true,
                                         get: row => row.op,
                                         show: row => [swatch(row.phase), el('span', {class: 'mono'}, row.op)]
                                       },
                                       {title: 'bytes', get: row => row.bytes, show: row => bytesText(row.bytes)},
                                       {title: 'products', get: row => row.flops, show: row => flopsText(row.flops)},
                                       {title: 'intensity', unit: 'FLOP/B', get: row => row.intensity},
                                       {title: 'time', unit: 'us', get: row => row.us[state.series]},
                                       {title: 'reached', unit: 'TFLOP/s', get: row => row.tflops},
                                       {title: 'roof', unit: 'TFLOP/s', get: row => row.roof},
                                       {title: 'of the roof', unit: '%', get: row => 100 * row.share}
                                     ]
                                   })));
}

// ---- Layers

function layersSection(scenario) {
  const rows = rowsOf(scenario).filter(row => row.layer >= 0);
  if (!rows.length) return null;
  const layers = [...new Set(rows.map(row => row.layer))].sort((a, b) => a - b);
  const names = [...new Set(rows.map(row => row.name))];
  const cells = new Map(rows.map(row => [row.name + ' ' + row.layer, row]));
  const metrics = [
    ...scenario.series.map((series, i) => ({title: series.title, unit: 'us', get: row => row.us[i]})),
    ...scenario.ratios.map(
        ratio => ({title: ratio.title, unit: 'x', isRatio: true, get: row => ratioOf(ratio, [row], item => item.us)}))
  ];
  const box = el('div');
  const show = index => {
    const metric = metrics[index], values = rows.map(metric.get).filter(value => value > 0);
    const low = Math.min(...values), high = Math.max(...values), strong = metric.isRatio ? '--heat1' : '--seq1';
    const share = value => high > low ? Math.log(value / low) / Math.log(high / low) : 1;
    const at = (r, c) => {
      const row = cells.get(names[r] + ' ' + layers[c]);
      return row ? metric.get(row) || null : null;
    };
    box.replaceChildren(
        heatMap({
          label: 'Ops by layer, ' + metric.title,
          rows: names,
          columns: layers.map(String),
          value: at,
          color: value => shade(.06 + .94 * share(value), strong),
          read: (r, c) => {
            const row = cells.get(names[r] + ' ' + layers[c]);
            return row ? `${row.id}: ${metric.title} ${
                             metric.get(row) > 0 ? digits(metric.get(row)) + ' ' + metric.unit : '-'}` +
                    (row.status ? `, ${row.status}` : '') :
                                  `layer ${layers[c]} has no ${names[r]}`;
          }
        }),
        scaleLegend(digits(low) + ' ' + metric.unit, digits(high) + ' ' + metric.unit + ' (logarithmic)', strong));
  };
  show(state.series);
  const totals = layers.map(
      layer => ({
        layer,
        us: scenario.series.map((series, i) => sum(rows.filter(row => row.layer === layer).map(row => row.us[i])))
      }));
  return el(
      'div', {},
      el('p', {class: 'what'},
         'Every op of every layer. One layer that stands out is a finding; a whole row that is dark is where to work.'),
      segments('colour', metrics.map((metric, i) => [i, metric.title]), state.series, show), box,
      lateTable(
          'Table: layers added up',
          () => makeTable({
            rows: totals,
            total: true,
            columns: [
              {title: 'layer', text: true, get: row => row.layer, show: row => String(row.layer)},
              ...timeColumns(scenario, row => row.us, totals), ...ratioColumns(scenario, row => row.us)
            ]
          })));
}
