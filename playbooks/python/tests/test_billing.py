"""The function is called as it is, without the program."""

from datetime import date
from decimal import Decimal
from unittest import TestCase

from shop.billing import Bill, Line, bill


class BillTest(TestCase):
    def test_a_bill_is_due_in_two_weeks(self) -> None:
        lines = [Line("tea", Decimal("2.50"), 2)]
        self.assertEqual(bill(lines, date(2026, 1, 31)), Bill(Decimal("5.00"), date(2026, 2, 14)))

    def test_a_bill_needs_a_line(self) -> None:
        with self.assertRaises(ValueError):
            bill([], date(2026, 1, 31))
