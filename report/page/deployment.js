// The sections of tables of dsv3-sim: ranks and skew, all-to-all, layouts, memory.


const numbered = (row, prefix) => Object.keys(row)
                                      .filter(key => key.startsWith(prefix))
                                      .map(key => [Number(key.slice(prefix.length)), row[key]])
                                      .sort((a, b) => a[0] - b[0])
                                      .map(pair => pair[1]);

// Blue below a fair share, red above; `high` is the end of the scale, the same for placements that are compared.
function loadColor(value, high) {
  const share = Math.abs(Math.log(Math.max(value, 1e-3))) / Math.log(Math.max(high, 1.5));
  return value < 1 ? shade(.7 * Math.min(1, share)) : shade(share, '--heat1');
}

function loadMap(table, prefix, what, rows, high) {
  const loads = rows.map(row => numbered(row, prefix));
  return el(
      'div', {}, heatMap({
        label: `${what} by layer`,
        rows: rows.map(row => 'layer ' + row.layer),
        columns: loads[0].map((value, i) => String(i)),
        minWidth: 2,
        maxWidth: 40,
        value: (r, c) => loads[r][c],
        color: value => loadColor(value, high),
        read: (r, c) => `layer ${rows[r].layer}, ${what} ${c}: ${digits(loads[r][c])} times the mean`
      }),
      scaleLegend('fair share', digits(high) + ' times (logarithmic)', '--heat1'),
      el('span', {class: 'count'},
         ` blue: below; fullest here ${digits(Math.max(...loads.flat()))}; ${fileName(table.file)}`),
      lateTable(
          `Table: ${what}s by layer`,
          () => makeTable({
            rows: rows.map((row, r) => ({layer: row.layer, loads: loads[r]})),
            sort: [1, true],
            columns: [
              {title: 'layer', get: row => row.layer, show: row => String(row.layer)},
              {title: 'fullest', unit: 'of the mean', get: row => Math.max(...row.loads)},
              {title: what, text: true, get: row => String(row.loads.indexOf(Math.max(...row.loads)))},
              {title: 'emptiest', unit: 'of the mean', get: row => Math.min(...row.loads)}, {
                title: 'below half the mean',
                get: row => row.loads.filter(load => load < .5).length,
                show: row => String(row.loads.filter(load => load < .5).length)
              }
            ]
          })));
}

function skewSection(scenario) {
  const content = [];
  for (const [i, series] of scenario.series.entries()) {
    if (series.ranks.length < 2) continue;
    const used = data.phases.map((name, p) => p).filter(p => series.ranks.some(rank => rank.us[p] > 0));
    const means = used.map(p => sum(series.ranks.map(rank => rank.us[p])) / series.ranks.length);
    content.push(
        el('h3', {}, `Time of each rank, ${series.title}`), heatMap({
          label: 'time of each rank by phase',
          rows: used.map(p => data.phases[p]),
          columns: series.ranks.map(rank => String(rank.rank)),
          value: (r, c) => series.ranks[c].us[used[r]] / means[r],
          color: value => loadColor(value, 2),
          read: (r, c) => `rank ${series.ranks[c].rank}, ${data.phases[used[r]]}: ${
              timeText(series.ranks[c].us[used[r]])}, ${digits(series.ranks[c].us[used[r]] / means[r])} times the mean`
        }),
        lateTable('Table: ranks', () => makeTable({
                                    rows: series.ranks,
                                    sort: [1, true],
                                    columns: [
                                      {title: 'rank', get: row => row.rank, show: row => String(row.rank)},
                                      {title: 'all', unit: 'us', get: row => sum(row.us)},
                                      ...used.map(p => ({title: data.phases[p], unit: 'us', get: row => row.us[p]}))
                                    ]
                                  })));
  }
  for (const table of data.sim.filter(item => item.name === 'skew')) {
    content.push(
        el('h3', {}, 'What unequal experts cost, dsv3-sim skew'), makeTable({
          id: 'skew-table',
          rows: table.value,
          columns: [
            {title: 'EP', get: row => row.ep, show: row => String(row.ep)}, {
              title: 'tokens',
              unit: 'a rank',
              get: row => row.tokens_per_rank,
              show: row => String(row.tokens_per_rank)
            },
            {title: 'placement', text: true, get: row => row.placement},
            {title: 'rank max/mean', unit: 'p50', get: row => row.rank_max_over_mean_p50},
            {title: 'MoE step', unit: 'ms p50', get: row => row.step_ms_p50},
            {title: 'MoE step', unit: 'ms p99', get: row => row.step_ms_p99},
            {title: 'waiting', unit: 'ms', get: row => row.wait_ms}, {
              title: 'more than balanced',
              unit: 'ms',
              get: row => row.cost_ms,
              show:
                  row => [digits(row.cost_ms) + ' ', el('span', {
                            class: 'cellbar',
                            style: `width:${
                                Math.max(
                                    0,
                                    80 * row.cost_ms /
                                        Math.max(
                                            ...table.value.map(other => other.cost_ms), 1e-9))}px;background:var(--p6)`
                          })]
            }
          ]
        }),
        el('p', {class: 'count'}, fileName(table.file)));
  }
  for (const table of data.sim.filter(item => item.name === 'rank_load')) {
    const high = Math.max(...table.value.flatMap(row => numbered(row, 'rank_')));
    for (const placement of [...new Set(table.value.map(row => row.placement))])
      content.push(
          el('h3', {}, `Load of each rank, experts placed ${placement}`),
          loadMap(table, 'rank_', 'rank', table.value.filter(row => row.placement === placement), high));
  }
  for (const table of data.sim.filter(item => item.name === 'expert_load'))
    content.push(
        el('h3', {}, 'Load of each expert'),
        loadMap(
            table, 'expert_', 'expert', table.value,
            Math.max(...table.value.flatMap(row => numbered(row, 'expert_')))));
  return content.length ?
      el('div', {},
         el('p', {class: 'what'},
            'A MoE layer takes as long as its fullest rank. Tables of dsv3-sim are of the deployment in their file, which need not be this scenario\'s.'),
         content) :
      null;
}

function matrixSection() {
  const tables = data.sim.filter(item => item.name === 'matrix');
  if (!tables.length) return null;
  return el(
      'div', {},
      el('p', {class: 'what'},
         'Copies of tokens from rank (row) to rank (column) in one MoE layer; the diagonal stays.'),
      tables.map(table => {
        const copies = table.value.map(row => numbered(row, 'to_')), high = Math.max(...copies.flat(), 1);
        const rows = table.value.map((row, r) => ({
                                       rank: row.from,
                                       sent: sum(copies[r]) - copies[r][r],
                                       received: sum(copies.map(line => line[r])) - copies[r][r],
                                       kept: copies[r][r],
                                       cells: copies[r]
                                     }));
        return el(
            'div', {}, heatMap({
              label: 'copies from rank to rank',
              rows: table.value.map(row => 'from ' + row.from),
              columns: copies[0].map((value, i) => String(i)),
              maxWidth: 22,
              value: (r, c) => copies[r][c],
              color: value => shade(value / high),
              read: (r, c) => `from rank ${table.value[r].from} to rank ${c}: ${copies[r][c]} copies`
            }),
            scaleLegend('0', high + ' copies'), el('p', {class: 'count'}, fileName(table.file)),
            lateTable(
                'Table: copies',
                () => makeTable({
                  rows,
                  columns: [
                    {title: 'rank', get: row => row.rank, show: row => String(row.rank)},
                    {title: 'sent', get: row => row.sent, show: row => String(row.sent)},
                    {title: 'received', get: row => row.received, show: row => String(row.received)},
                    {title: 'kept', get: row => row.kept, show: row => String(row.kept)},
                    ...(copies.length <= 64 ?
                            copies[0].map(
                                (value, c) =>
                                    ({title: 'to ' + c, get: row => row.cells[c], show: row => String(row.cells[c])})) :
                            [])
                  ]
                })));
      }));
}

function paretoSection() {
  const tables = data.sim.filter(item => item.name === 'pareto');
  if (!tables.length) return null;
  const rows = tables.flatMap((table, t) => table.value.map(row => ({...row, table: t, file: fileName(table.file)})));
  const points =
      rows.map(row => ({
                 x: row.tokens_per_s_per_user,
                 y: row.tokens_per_s_per_gpu,
                 color: seriesColor[row.table % seriesColor.length],
                 label: row.parallel.replace(/ (pp|dp|tp|ep)1\b/g, '').replace(/^(pp|dp|tp)1 /, ''),
                 text: `${row.parallel}, ${digits(row.bs)} sequences a DP rank on ${row.num_total_gpus} GPUs: ${
                     digits(row.tokens_per_s_per_user)} tokens/s a user, ${digits(row.tokens_per_s_per_gpu)} a GPU`
               }));
  return el(
      'div', {},
      el('p', {class: 'what'},
         'Layouts and batches that no other beats: fast for a user to the right, cheap a token to the top. Predictions of dsv3-sim search.'),
      tables.length > 1 ?
          legend(tables.map(
              (table, t) => ({color: seriesColor[t % seriesColor.length], label: fileName(table.file), text: ''}))) :
          null,
      logScatter({points, xTitle: 'tokens/s a user', yTitle: 'tokens/s a GPU', label: 'Pareto front of layouts'}),
      makeTable({
        id: 'pareto-table',
        rows,
        most: 40,
        sort: [3, true],
        columns: [
          {title: 'layout', text: true, get: row => row.parallel},
          {title: 'GPUs', get: row => row.num_total_gpus, show: row => String(row.num_total_gpus)},
          {title: 'sequences', unit: 'a DP rank', get: row => row.bs},
          {title: 'tokens/s', unit: 'a user', get: row => row.tokens_per_s_per_user},
          {title: 'tokens/s', unit: 'a GPU', get: row => row.tokens_per_s_per_gpu},
          {title: 'a token', unit: 'ms', get: row => row.tpot_ms}, {
            title: '90 % interval',
            unit: 'ms',
            get: row => row.tpot_low_ms,
            show: row => row.tpot_low_ms ? `${digits(row.tpot_low_ms)} to ${digits(row.tpot_high_ms)}` : '-'
          },
          {title: 'first token', unit: 'ms', get: row => row.ttft_ms},
          {title: 'memory', unit: 'GB', get: row => row.memory_gb}, {title: 'file', text: true, get: row => row.file}
        ]
      }));
}

function memorySection() {
  const tables = data.sim.filter(item => item.name === 'memory');
  if (!tables.length) return null;
  return el(
      'div', {},
      el('p', {class: 'what'}, 'Memory of the fullest decode GPU with all sequences asked for, dsv3-sim estimate.'),
      tables.map(table => {
        const items = table.value.filter(row => row.item !== 'total' && row.bytes > 0),
              total = sum(items.map(row => row.bytes));
        const estimate = data.sim.find(item => item.name === 'estimate' && item.file === table.file)?.value;
        const parts = items.map(
            (row, i) =>
                ({label: row.item, value: row.bytes, color: phaseColor((i * 5 + 1) % 12), text: bytesText(row.bytes)}));
        const room = estimate ? Math.max(0, estimate.memory_usable_gb * 1e9 - total) : 0;
        if (room > 0) parts.push({label: 'free', value: room, color: 'var(--faint)', text: bytesText(room)});
        return el(
            'div', {},
            el('h3', {},
               `${fileName(table.file)}: ${bytesText(total)}` +
                   (estimate ? ` of ${digits(estimate.memory_usable_gb)} GB usable, ${estimate.decode_layout}` : ''),
               estimate && total > estimate.memory_usable_gb * 1e9 ?
                   el('span', {class: 'slow'}, ' does not fit at once') :
                   null),
            stackedBar(parts, 'memory'), legend(parts, 12),
            lateTable('Table: memory', () => makeTable({
                                         rows: items,
                                         total: true,
                                         sort: [1, true],
                                         columns: [
                                           {title: 'item', text: true, get: row => row.item},
                                           {title: 'GB', get: row => row.bytes / 1e9, sum: true},
                                           {title: 'formula', text: true, wrap: true, get: row => row.formula || ''}
                                         ]
                                       })));
      }));
}
