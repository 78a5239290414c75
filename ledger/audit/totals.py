"""The audit of totals: each is compared with the entries that it sums.

Totals are made once, from what was committed when it was known that nothing would be recorded there
any more. What breaks that (a clock that was set back, a row written by hand) is named here.
Source: docs/decisions/0066-totals.md
"""

from collections.abc import Iterator
from typing import Any, Final

from psycopg import Connection

_SUMS: Final = "coalesce({0}.debits, 0), coalesce({0}.credits, 0)"

# A page begins after the end of the one before, and a bucket with its first time: so an entry is in
# the bucket of a microsecond earlier.
_PAGES: Final = f"""
    WITH ends AS MATERIALIZED (
        SELECT array_agg(recorded_until ORDER BY recorded_until) AS times
        FROM (SELECT DISTINCT recorded_until FROM posting_totals) t
    ), summed AS (
        SELECT e.times[m.page + 1] AS recorded_until,
            coalesce(d.platform_id, c.platform_id) AS platform_id,
            coalesce(d.currency, c.currency) AS currency, s.kind, m.posted_on,
            sum(s.debits) AS debits, sum(s.credits) AS credits
        FROM ends e
        CROSS JOIN LATERAL (
            SELECT width_bucket(n.recorded_at - interval '1 microsecond', e.times) AS page,
                nullif(n.debit_account_id, n.account_id) AS debit_id,
                nullif(n.credit_account_id, n.account_id) AS credit_id, n.posted_on,
                sum(n.amount) AS amount
            FROM entries n
            WHERE n.recorded_at <= e.times[cardinality(e.times)]
            GROUP BY 1, 2, 3, 4
        ) m
        LEFT JOIN system_accounts d ON d.id = m.debit_id
        LEFT JOIN system_accounts c ON c.id = m.credit_id
        CROSS JOIN LATERAL (VALUES
            (coalesce(d.kind, 'CUSTOMER'), m.amount, 0),
            (coalesce(c.kind, 'CUSTOMER'), 0, m.amount)
        ) AS s (kind, debits, credits)
        GROUP BY 1, 2, 3, 4, 5
    )
    SELECT recorded_until, platform_id, currency, kind, posted_on, {_SUMS.format("t")},
        {_SUMS.format("s")}
    FROM posting_totals t
    FULL JOIN summed s USING (recorded_until, platform_id, currency, kind, posted_on)
    WHERE ({_SUMS.format("t")}) <> ({_SUMS.format("s")})
    ORDER BY 1, 2, 3, 4, 5
"""

_ACCOUNTS: Final = f"""
    SELECT account_id, last_version, posted_on, {_SUMS.format("t")}, {_SUMS.format("s")}
    FROM account_totals t
    FULL JOIN (
        SELECT p.account_id, p.last_version, m.posted_on, m.debits, m.credits
        FROM (SELECT DISTINCT account_id, first_version, last_version FROM account_totals) p
        CROSS JOIN LATERAL (
            SELECT e.posted_on,
                sum(CASE e.debit_account_id WHEN p.account_id THEN e.amount ELSE 0 END) AS debits,
                sum(CASE e.debit_account_id WHEN p.account_id THEN 0 ELSE e.amount END) AS credits
            FROM entries e
            WHERE e.account_id = p.account_id
                AND e.account_version BETWEEN p.first_version AND p.last_version
            GROUP BY e.posted_on
        ) m
    ) s USING (account_id, last_version, posted_on)
    WHERE ({_SUMS.format("t")}) <> ({_SUMS.format("s")})
    ORDER BY 1, 2, 3
"""

_GAPS: Final = """
    SELECT account_id, last_version FROM (
        SELECT account_id, first_version, last_version, recorded_from, recorded_until,
            lag(last_version, 1, 0::bigint) OVER w AS before
        FROM (
            SELECT DISTINCT account_id, first_version, last_version, recorded_from, recorded_until
            FROM account_totals
        ) t
        WINDOW w AS (PARTITION BY account_id ORDER BY last_version)
    ) p
    WHERE p.first_version <> p.before + 1 OR (p.recorded_from, p.recorded_until) <> (
        SELECT min(e.recorded_at), max(e.recorded_at) FROM entries e
        WHERE e.account_id = p.account_id
            AND e.account_version BETWEEN p.first_version AND p.last_version
    )
    ORDER BY 1, 2
"""

_OF_PAGE: Final = (
    "Totals recorded until {}, platform {}, {} {} posted on {}: debits {}, credits {}; its entries"
    " give {}, {}"
)
_OF_ACCOUNT: Final = (
    "Totals of InternalAccount:{} up to entry {}, posted on {}: debits {}, credits {}; its entries"
    " give {}, {}"
)
_OF_GAP: Final = (
    "Totals of InternalAccount:{} up to entry {}: do not follow the totals before them, or have"
    " other times than their entries"
)
_CHECKS: Final = ((_PAGES, _OF_PAGE), (_ACCOUNTS, _OF_ACCOUNT), (_GAPS, _OF_GAP))


def differences(connection: Connection[Any]) -> Iterator[str]:
    """Yield which totals are not those of their entries."""
    for statement, description in _CHECKS:
        for row in connection.execute(statement):
            yield description.format(*row)
