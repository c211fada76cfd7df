// A table that sorts by its headings, filters by words, and adds up groups.

// spec: {id, columns: [{title, unit, text: bool, get(row) -> value, show(row) -> string or element, sum: bool, wrap:
// bool}], rows,
//   sort: [column, descending], filter: bool, controls: [elements], group(row) -> name, groupIcon(name), total: bool,
//   most}
function makeTable(spec) {
  let [sortColumn, isDescending] = spec.sort || [-1, false];
  let words = [];
  let most = spec.most || 300;
  const closed = new Set();
  const body = el('tbody');
  const count = el('span', {class: 'count', role: 'status'});
  const headings = spec.columns.map((column, i) => {
    const button =
        el('button', {
          type: 'button',
          title: column.title + ': sort',
          onclick: () => {
            isDescending = sortColumn === i ? !isDescending : !column.text;
            sortColumn = i;
            draw();
          }
        },
           column.title, column.unit ? el('small', {}, column.unit) : null);
    return el('th', {scope: 'col', class: column.text ? 'text' : null}, button);
  });

  const textOf = row =>
      spec.columns.filter(column => column.text).map(column => String(column.get(row))).join(' ').toLowerCase();
  const compare = (left, right) => {
    const a = spec.columns[sortColumn].get(left), b = spec.columns[sortColumn].get(right);
    const isLeftEmpty = a === null || a === undefined, isRightEmpty = b === null || b === undefined;
    if (isLeftEmpty || isRightEmpty) return isLeftEmpty - isRightEmpty;
    const order = typeof a === 'string' ? a.localeCompare(b) : a - b;
    return isDescending ? -order : order;
  };
  const rowOf = row =>
      el('tr', {},
         spec.columns.map(
             column =>
                 el('td', {class: [column.text ? 'text' : '', column.wrap ? 'wrap' : ''].join(' ').trim() || null},
                    column.show     ? column.show(row) :
                        column.text ? String(column.get(row)) :
                                      digits(column.get(row)))));
  const sumRow = (name, rows, kind, opener) => el('tr', {class: kind}, spec.columns.map((column, i) => {
    if (i === 0) return el('td', {class: 'text'}, opener || name);
    if (!column.sum) return el('td');
    const total = sum(rows.map(column.get));
    return el('td', {}, column.showSum ? column.showSum(rows, total) : digits(total));
  }));

  function draw() {
    headings.forEach((heading, i) => {
      if (i === sortColumn)
        heading.setAttribute('aria-sort', isDescending ? 'descending' : 'ascending');
      else
        heading.removeAttribute('aria-sort');
    });
    let rows = spec.rows.filter(row => words.every(word => textOf(row).includes(word)));
    const matching = rows.length;
    if (sortColumn >= 0) rows = [...rows].sort(compare);
    const drawn = [];
    let shown = 0;
    if (spec.group) {
      const groups = new Map();
      for (const row of rows) {
        const name = spec.group(row);
        groups.has(name) ? groups.get(name).push(row) : groups.set(name, [row]);
      }
      let order = [...groups];
      const key = sortColumn >= 0 ? spec.columns[sortColumn] : null;
      if (key && key.sum) {
        const weight = ([, members]) => sum(members.map(key.get));
        order.sort((a, b) => isDescending ? weight(b) - weight(a) : weight(a) - weight(b));
      }
      for (const [name, members] of order) {
        const isOpen = !closed.has(name);
        const opener =
            el('button', {
              type: 'button',
              'aria-expanded': String(isOpen),
              onclick: () => {
                closed.has(name) ? closed.delete(name) : closed.add(name);
                draw();
              }
            },
               isOpen ? '\u25be ' : '\u25b8 ', spec.groupIcon ? spec.groupIcon(name) : null, name);
        drawn.push(sumRow(name, members, 'group', opener));
        for (const row of isOpen ? members : [])
          if (shown < most) {
            drawn.push(rowOf(row));
            ++shown;
          }
      }
    } else {
      for (const row of rows.slice(0, most)) {
        drawn.push(rowOf(row));
        ++shown;
      }
    }
    if (spec.total) drawn.push(sumRow('total', rows, 'total'));
    body.replaceChildren(...drawn);
    count.replaceChildren(
        matching === spec.rows.length ? `${matching} rows` : `${matching} of ${spec.rows.length} rows`);
    if (matching > most) {
      count.append(
          `, first ${most} shown `,
          el('button', {
            type: 'button',
            onclick: () => {
              most = Infinity;
              draw();
            }
          },
             'show all'));
    }
  }

  const controls = [...(spec.controls || [])];
  if (spec.filter) {
    controls.push(el('label', {}, 'filter', el('input', {
                       type: 'search',
                       placeholder: 'words: q_a attention',
                       'aria-label': 'filter rows by words',
                       oninput: event => {
                         words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
                         draw();
                       }
                     })));
  }
  if (spec.filter || spec.rows.length > 30) controls.push(count);
  draw();
  return el(
      'div', {id: spec.id, class: 'tablebox'}, controls.length ? el('div', {class: 'controls'}, controls) : null,
      el('div', {class: 'wide'}, el('table', {}, el('thead', {}, el('tr', {}, headings)), body)));
}

// A table that is made when somebody opens it (or prints).
function lateTable(title, make) {
  const box =
      el('details', {
        ontoggle: () => {
          if (box.open && box.children.length === 1) box.append(make());
        }
      },
         el('summary', {}, title));
  return box;
}

// One choice of several. options: [[value, label]]
function segments(label, options, chosen, choose) {
  const box = el('span', {class: 'segments', role: 'group', 'aria-label': label});
  for (const [value, text] of options) {
    box.append(
        el('button', {
          type: 'button',
          'aria-pressed': String(value === chosen),
          onclick: event => {
            for (const other of box.children) other.setAttribute('aria-pressed', 'false');
            event.currentTarget.setAttribute('aria-pressed', 'true');
            choose(value);
          }
        },
           text));
  }
  return el('span', {class: 'controls'}, label, box);
}
