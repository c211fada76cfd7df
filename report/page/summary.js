// The sections that answer first. Every section takes the chosen scenario and returns its content, or null when there
// is none.

const seriesColor = ['var(--accent)', 'var(--p4)', 'var(--p3)', 'var(--p5)', 'var(--p2)'];

// The series of the charts, chosen once for all of them.
function seriesPicker(scenario) {
  return segments('show', scenario.series.map((series, i) => [i, series.title]), state.series, i => {
    const place = window.scrollY;
    state.series = i;
    draw();
    window.scrollTo(0, place);
  });
}

function main(scenario) {
  return scenario.series[scenario.main];
}

function phaseParts(scenario, series) {
  return data.phases
      .map((name, i) => ({
             label: name,
             value: series.phases[i],
             color: phaseColor(i),
             text: percent(series.phases[i], series.total)
           }))
      .filter(part => part.value > 0)
      .sort((a, b) => b.value - a.value);
}


function rightTile(scenario) {
  const verification = data.verification;
  if (!verification)
    return tile(
        'warn', 'Is it right?', 'not verified', el('p', {}, 'Give the verdict of dsv3-verify --json with --verify.'));
  // A pass of another model says nothing good about this one.
  const kind = !scenario.verified && verification.verdict === 'pass' ?
      'plain' :
      {pass: 'good', fail: 'bad', undecided: 'warn'}[verification.verdict];
  const uses = verification.ops.map(op => op[3]).filter(use => use !== null);
  const counts = Object.entries(verification.counts).map(([status, count]) => `${count} ${status}`).join(', ');
  return tile(
      kind, 'Is it right?', verification.verdict.toUpperCase(),
      el('p', {}, `${verification.num_ops} ops against profile ${verification.profile}: ${counts}`),
      verification.first ? el('p', {}, el('b', {}, 'First divergence: '), verification.first) :
                           el('p', {}, `Largest use of a bound: ${digits(Math.max(0, ...uses), 2)} of 1`),
      scenario.verified ?
          null :
          el('p', {}, el('b', {}, 'Of another model'), ' than this scenario: ', fileName(verification.file)));
}

function tile(kind, question, answer, ...more) {
  return el('div', {class: 'tile ' + kind}, el('h3', {}, question), el('div', {class: 'big'}, answer), more);
}

function timeTile(scenario) {
  const series = main(scenario), parts = phaseParts(scenario, series);
  return tile(
      'plain', 'Where does the time go?', [timeText(series.total), el('small', {}, ' ' + series.title)],
      stackedBar(parts, 'share of phases'), legend(parts, 5));
}

function limitTile(scenario) {
  const series = main(scenario);
  const ratio =
      scenario.ratios.find(item => item.above === scenario.main && scenario.series[item.below].source === 'limit');
  const clock = series.clock, shown = scenario.series.filter(item => item.clock === clock);
  const longest = Math.max(...shown.map(item => item.step));
  const bars =
      el('div', {class: 'bars'},
         shown.map(
             item =>
                 [el('span', {}, item.title.length > 26 ? item.title.slice(0, 25) + '\u2026' : item.title),
                  el('span', {class: 'track'}, el('i', {style: `width:${100 * item.step / longest}%`})),
                  el('span', {}, timeText(item.step))]));
  if (!ratio)
    return tile(
        'warn', 'How far from the limit?', 'unknown',
        el('p', {},
           clock === 'cpu' ? 'A CPU time has no GPU limit. With records of dsv3-bench host its own roofline is drawn.' :
                             'No limit records.'),
        bars);
  const limit = scenario.series[ratio.below], value = series.step / limit.step;
  return tile(
      'plain', 'How far from the limit?', [ratioText(value), el('small', {}, ' ' + ratio.title)], bars,
      el('p', {},
         limit.step < .98 * limit.total ?
             `Limit: exchange hidden behind computing, or the other way round; one after another ${
                 timeText(limit.total)}.` :
             `${timeText(series.step - limit.step)} above it in a step.`));
}

function skewTile(scenario) {
  const waiting = data.phases.indexOf('waiting'), series = main(scenario);
  const us = series.phases[waiting];
  if (us > 0) {
    const kind = us > .1 * series.total ? 'bad' : us > .03 * series.total ? 'warn' : 'good';
    return tile(
        kind, 'What does skew cost?', [timeText(us), el('small', {}, ` ${percent(us, series.total)} of the step`)],
        el('p', {}, 'The average rank waits for the fullest one in every MoE layer: routing sampled by the simulator.'),
        eplbText());
  }
  const measured = scenario.series.find(item => item.measured && item.ranks.length > 1);
  if (measured) {
    const totals = measured.ranks.map(rank => sum(rank.us)), mean = sum(totals) / totals.length,
          most = Math.max(...totals);
    return tile(
        most > 1.1 * mean ? 'bad' : 'good', 'What does skew cost?',
        [timeText(most - mean), el('small', {}, ' slowest rank over mean')],
        el('p', {},
           `Rank ${measured.ranks[totals.indexOf(most)].rank} is the slowest of ${totals.length}, ${
               ratioText(most / mean)} the mean; times of ops added up by rank.`));
  }
  return tile(
      'plain', 'What does skew cost?', 'nothing here',
      el('p', {},
         scenario.gpus > 1 ? 'Every rank holds a slice of every expert in this layout: no rank waits for another.' :
                             'One rank: nobody waits.'),
      eplbText());
}

function eplbText() {
  const table = data.sim.find(item => item.name === 'skew');
  if (!table) return null;
  const plain = table.value.find(row => row.placement === 'in order'),
        placed = table.value.find(
            row => row.placement === 'EPLB' && row.ep === plain?.ep && row.tokens_per_rank === plain?.tokens_per_rank);
  if (!plain || !placed) return null;
  return el(
      'p', {},
      `dsv3-sim skew, EP${plain.ep}, ${plain.tokens_per_rank} tokens a rank: ${
          digits(plain.cost_ms)} ms a step in order, ${digits(placed.cost_ms)} ms with EPLB.`);
}

function findings(scenario) {
  const list = scenario.findings, mainIndex = scenario.main;
  const series = main(scenario);
  const short = (title, rows, columns) =>
      el('div', {}, el('h3', {}, title), el('table', {}, el('tbody', {}, rows.map(row => el('tr', {}, columns(row))))));
  const name = row =>
      el('td', {class: 'text'}, swatch(data.phases.indexOf(row.phase)), el('span', {class: 'mono'}, row.op),
         row.rows > 1 && row.op !== row.phase ? ` x${row.rows}` : '');
  return el(
      'section', {'aria-label': 'Findings'},
      el('div', {class: 'columns'},
         short(
             `Top costs, ${series.title}`, list.costs,
             row =>
                 [name(row), el('td', {}, timeText(row.us[mainIndex])),
                  el('td', {}, percent(row.us[mainIndex], series.total))]),
         list.gaps.map(gap => {
           const ratio = scenario.ratios[gap.ratio];
           return short(
               `Biggest gaps, ${ratio.title}`, gap.ops,
               row =>
                   [name(row), el('td', {}, `+${timeText(row.value)}`),
                    el('td', {}, ratioText(row.us[ratio.above] / row.us[ratio.below]))]);
         }),
         list.layers.length ? short(
                                  `Layers that stand out, ${series.title}`, list.layers,
                                  row =>
                                      [el('td', {class: 'text'}, `layer ${row.layer}`), el('td', {}, timeText(row.us)),
                                       el('td', {}, `+${timeText(row.more)} over the median of its ops`)]) :
                              null));
}

function regressionNotice() {
  const regression = data.regression;
  if (!regression || regression.slower + regression.faster === 0) return null;
  return el(
      'div', {class: 'notice' + (regression.slower ? ' warning' : ''), role: 'note'},
      `Against the baseline: ${regression.slower} records slower, ${regression.faster} faster, ${
          regression.same} the same. `,
      el('a', {href: '#regression'}, 'Which'));
}

function summarySection(scenario) {
  const warnings = data.notices.filter(notice => notice.warning);
  return el(
      'div', {}, warnings.map(notice => el('div', {class: 'notice warning', role: 'note'}, notice.text)),
      regressionNotice(),
      el('div', {class: 'tiles'}, rightTile(scenario), timeTile(scenario), limitTile(scenario), skewTile(scenario)),
      el('div', {style: 'height:.9rem'}), findings(scenario));
}

// ---- One token

function layersText(row) {
  if (row.first < 0 && row.last < 0) return '';
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
  return scenario.ratios.map(ratio => ({
                               title: ratio.title,
                               get: row => ratioOf(ratio, [row], us),
                               show: row => ratioText(ratioOf(ratio, [row], us)),
                               sum: true,
                               showSum: rows => ratioText(ratioOf(ratio, rows, us))
                             }));
}

// Said wherever single ops have a simulated time.
function sharesNotice(scenario) {
  if (!scenario.series.some(series => series.source === 'simulated')) return null;
  return el(
      'div', {class: 'notice', role: 'note'},
      'The simulator predicts modules: attention, experts, router, head, a collective. The simulated time of one op is its share of the module, dealt out by the hardware floor of the ops (a fixed time evenly). Only sums over a module are predictions, so compare phases with a measurement, not single ops.');
}

// `rows` say which unit suits them.
function timeColumns(scenario, us, rows) {
  return scenario.series.map((series, i) => {
    const unit = timeUnit(Math.max(...rows.map(row => us(row)[i] || 0)));
    return {
      title: series.title,
      unit: series.source === 'simulated' ? `${unit.name}, share of module` : unit.name,
      get: row => us(row)[i],
      show: row => {
        const time = us(row)[i];
        if (time === null || time === undefined) return '-';
        return time === 0 && series.source === 'simulated' ? 'hidden' : digits(time / unit.divisor);
      },
      sum: true,
      showSum: (rows, total) => total > 0 ? digits(total / unit.divisor) : '-'
    };
  });
}

function journeySection(scenario) {
  const us = row => row.us, largest = Math.max(...scenario.journey.map(row => row.us[scenario.main])),
        total = main(scenario).total;
  return el(
      'div', {},
      el('p', {class: 'what'},
         `The way of one ${scenario.phase} step through the model, stages one after another. The limit of the whole step ` +
             'above may hide exchange behind computing, and so does the simulator where it says hidden. Times are of ' +
             'the slowest rank; GPU and CPU clocks are never divided by one another.'),
      sharesNotice(scenario),
      makeTable({
        id: 'journey-table',
        rows: scenario.journey,
        total: true,
        columns: [
          {title: 'stage', text: true, get: row => row.row},
          {title: 'layers', text: true, get: layersText},
          ...timeColumns(scenario, us, scenario.journey),
          ...ratioColumns(scenario, us),
          {
            title: 'share',
            unit: main(scenario).title,
            get: row => row.us[scenario.main],
            show: row => [percent(row.us[scenario.main], total) + ' ', el('span', {
                            class: 'cellbar',
                            style: `width:${largest > 0 ? 70 * row.us[scenario.main] / largest : 0}px`
                          })]
          },
          {
            title: 'weights, cache',
            get: row => row.bytes,
            show: row => bytesText(row.bytes),
            sum: true,
            showSum: (rows, total_) => bytesText(total_)
          },
          {
            title: 'products',
            get: row => row.flops,
            show: row => flopsText(row.flops),
            sum: true,
            showSum: (rows, total_) => flopsText(total_)
          },
        ]
      }));
}
